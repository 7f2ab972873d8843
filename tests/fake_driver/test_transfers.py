"""Large transfers between the host and a device go through pinned memory, by several threads."""

import pytest
from fake_driver.harness import in_child

both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@both
@in_child
def test_downloads_of_every_size_have_every_byte(platform):
    import numpy as np
    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import copies, down, filled
    from fake_driver.scenes.staged import PIECE, THREADS

    import dlbridge

    for pieces in 1, 2, 4, 5, 6, 7, 13:
        for nbytes in pieces * PIECE - 1, pieces * PIECE, pieces * PIECE + 1:
            source, content = filled(nbytes)
            driver.clear()
            assert down(source) == content
            assert (copies() > 1) == (nbytes >= 4 * PIECE), nbytes
            into = np.zeros(nbytes, "u1")
            dlbridge.convert(source, "numpy", device="cpu", out=into)
            assert into.tobytes() == content
            driver.free(source.entries["data"][0])
    assert driver.alive("events") == 0 and driver.alive("pushed") == 1
    # Each thread has two buffers and two streams, whatever was moved.
    assert driver.alive("allocations") == 2 * THREADS and driver.alive("streams") == 1 + 2 * THREADS


@pytest.mark.needs("numba")
@in_child
def test_uploads_of_every_size_have_every_byte():
    import numpy as np
    from fake_driver.producers import driver
    from fake_driver.scenes.staged import PIECE, random
    from fake_driver.scenes.uploads import copies, up

    for pieces in 1, 2, 4, 5, 6, 7, 13:
        for nbytes in pieces * PIECE - 1, pieces * PIECE, pieces * PIECE + 1:
            source = random.integers(0, 256, nbytes, "u1")
            driver.clear()
            assert np.array_equal(up(source).copy_to_host(), source)
            assert copies() > 1 or nbytes < 4 * PIECE, nbytes
    assert driver.alive("events") == 0


@pytest.mark.needs("numba")
@in_child
def test_every_layout_is_gathered_into_the_buffers():
    import numpy as np
    from fake_driver.producers import driver
    from fake_driver.scenes.staged import PIECE, random
    from fake_driver.scenes.uploads import copies, up

    base = random.integers(0, 250, (96, 128, 7), "u1")
    views = {
        "compact": lambda a: a, "transposed": lambda a: a.T, "every second": lambda a: a[:, ::2],
        "reversed": lambda a: a[::-1, :, ::-1], "swapped axes": lambda a: a.transpose(1, 0, 2),
        "a few long rows": lambda a: a.reshape(-1)[:85_000].reshape(5, -1).T, "one": lambda a: a[:, :, 3],
        "repeated": lambda a: np.broadcast_to(a[:1], a.shape), "windows": lambda a: np.lib.stride_tricks.
        sliding_window_view(a.reshape(-1)[:9000], 5),
    }
    for dtype in "uint8", "float32", ">f4", ">c16", "complex64", "float16":
        for name, view in views.items():
            source = view(base.astype(dtype))
            driver.clear()
            there = up(source)
            assert copies() > 1 or source.nbytes < 4 * PIECE, (dtype, name)
            assert np.array_equal(there.copy_to_host(), source), (dtype, name)
    # A copy of bools has the bytes 0 and 1 alone.
    there = up(base.view(bool)).copy_to_host()
    assert there.view("u1").max() == 1 and np.array_equal(there, base != 0)


@pytest.mark.parametrize("XLA_VERSION", ["1", "2"])
@pytest.mark.parametrize("XLA_ORDER", ["any", "C"])
@in_child
def test_what_a_library_lacks_is_changed_on_the_way(XLA_VERSION, XLA_ORDER):
    import numpy as np
    from fake_driver import xla
    from fake_driver.producers import driver
    from fake_driver.scenes.staged import PIECE, random

    import dlbridge
    from dlbridge.testing import unordered_releases

    base = random.integers(-100, 100, (64, 8 * PIECE // 64))
    base[3, 5] = -2**31
    views = {
        "compact": lambda a: a, "transposed": lambda a: a.T, "every second": lambda a: a[:, ::2],
        "reversed": lambda a: a[::-1, ::-1], "repeated": lambda a: np.broadcast_to(a[5], a.shape),
        "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
    }
    for dtype, near in ("int64", "i4"), (">i8", "i4"), ("float64", "f4"), (">f8", "f4"), (">f4", "f4"):
        for name, view in views.items():
            source = view(base.astype(dtype))
            for asked in None, "C":
                driver.clear()
                done = xla.uploads
                there = dlbridge.convert(source, "xla", device="cuda:0", narrow=True, order=asked)
                assert xla.uploads == done and len(driver.log("MemcpyHtoDAsync")) > 1, (dtype, name)
                content = np.frombuffer(driver.read(there.start, source.size * 4), near)
                order = "F" if source.flags.fnc and XLA_ORDER == "any" and asked is None else "C"
                assert np.array_equal(content, source.astype(near).ravel(order)), (dtype, name)
                there.read()
    del there
    xla.done()
    assert unordered_releases() == 0 and driver.races() == []


@pytest.mark.parametrize("XLA_VERSION", ["1", "2"])
@in_child
def test_a_value_that_does_not_fit_on_the_way_is_an_error_and_nothing_is_left(XLA_VERSION):
    from fake_driver import xla
    from fake_driver.producers import driver
    from fake_driver.scenes.staged import PIECE, random

    import dlbridge

    base = random.integers(-100, 100, (64, 8 * PIECE // 64))
    dlbridge.convert(base, "xla", device="cuda:0", narrow=True).read()      # it pins buffers, which are kept
    xla.done()
    base[3, 5] = 2**33
    before = driver.alive("allocations")
    try:
        dlbridge.convert(base, "xla", device="cuda:0", narrow=True)
    except dlbridge.ConversionError as error:
        assert f"value {base[3, 5]} at (3, 5): does not fit into int32" in str(error), error
    else:
        raise AssertionError
    assert driver.alive("allocations") == before


@pytest.mark.parametrize("XLA_VERSION", ["1", "2"])
@in_child
def test_what_needs_no_change_on_the_way_is_copied_at_once(XLA_VERSION):
    import ctypes

    import numpy as np
    from fake_driver import xla
    from fake_driver.producers import driver
    from fake_driver.scenes.staged import PIECE, random

    import dlbridge
    from dlbridge.testing import unordered_releases

    base = random.integers(-100, 100, (64, 8 * PIECE // 64))
    # The stream that is named has nothing to wait for, and the memory goes back once the library has read it.
    for stream in driver.stream(), -1, 1, None:
        there = dlbridge.convert(base.astype("i4"), "xla", device="cuda", stream=stream)
        there.read()
        del there
        xla.done()
    assert unordered_releases() == 0 and driver.races() == []
    # Memory that is pinned already is copied by the driver alone, into the pool.
    pinned = (ctypes.c_int32 * (8 * PIECE)).from_address(driver.allocate(0, 32 * PIECE, "host"))
    driver.clear()
    done = xla.uploads
    there = dlbridge.convert(np.frombuffer(pinned, "i4"), "xla", device="cuda:0")
    assert (xla.uploads, len(driver.log("MemcpyHtoDAsync"))) == (done, 1)
    # Without pinned memory, or where it is small, it is narrowed here, and the library's own copy does the rest.
    driver.fail("MemHostAlloc", 2)
    done = xla.uploads
    there = dlbridge.convert(base[:4], "xla", device="cuda:0", narrow=True)
    assert xla.uploads == done + 1
    assert np.array_equal(np.frombuffer(driver.read(there.start, base[:4].size * 4), "i4"), base[:4].ravel())


@both
@in_child
def test_a_download_is_ordered_after_its_producer_and_nothing_else(platform):
    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import down, filled, producers
    from fake_driver.scenes.staged import PIECE, THREADS

    source, content = filled(8 * PIECE)
    start = source.entries["data"][0]
    down(source)                        # streams and buffers are made once
    driver.use(start, producers.handle, "write")
    driver.clear()
    assert down(source) == content
    [record] = driver.log("EventRecord")
    assert f"stream={producers.handle:#x}" in record
    waits = driver.log("StreamWaitEvent")
    assert len(waits) == 2 * THREADS and not any(f"stream={producers.handle:#x}" in wait for wait in waits)
    driver.use(start, producers.handle, "write")        # it was read
    # Without an order, nobody waits; the driver then sees the race.
    driver.clear()
    assert down(source, stream=-1) == content
    assert driver.log("EventRecord", "StreamWaitEvent") == [] and driver.races()


@both
@pytest.mark.parametrize("call", ["MemcpyDtoHAsync", "StreamSynchronize", "StreamWaitEvent", "EventRecord"])
@in_child
def test_a_call_that_fails_in_a_thread_is_one_error(platform, call):
    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import down, filled
    from fake_driver.scenes.staged import PIECE, THREADS, refused

    source, content = filled(9 * PIECE)
    assert down(source) == content
    for after in range(3):
        if (call, after) in (("EventRecord", 1), ("EventRecord", 2)):
            continue                    # it is called once
        driver.fail(call, 700, after=after)
        refused(lambda: down(source), call, "the first error of the GPU before")
        driver.fail(call, 0)
        assert driver.alive("events") == 0 and driver.alive("pushed") == 1
        assert down(source) == content
    assert driver.alive("allocations") == 1 + 2 * THREADS


@both
@pytest.mark.parametrize("call", ["MemHostAlloc", "StreamCreate"])
@in_child
def test_without_pinned_memory_the_driver_copies_it_all(platform, call):
    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import copies, down, filled
    from fake_driver.scenes.staged import PIECE, THREADS

    source, content = filled(9 * PIECE)
    driver.fail(call, 2)
    assert down(source) == content and copies() == 1
    driver.fail(call, 2, after=2)           # there is enough for one thread alone, which gains nothing
    driver.clear()
    assert down(source) == content and copies() == 1
    driver.fail(call, 2, after=2)           # … for two
    driver.clear()
    assert down(source) == content and copies() > 1
    driver.fail(call, 0)
    driver.clear()
    assert down(source) == content and copies() > 4
    assert driver.alive("allocations") == 1 + 2 * THREADS and driver.alive("streams") == 1 + 2 * THREADS


@both
@in_child
def test_captures_are_respected(platform):
    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import down, filled, producers
    from fake_driver.scenes.staged import PIECE, refused

    source, content = filled(8 * PIECE)
    driver.capture(producers.handle)
    refused(lambda: down(source), "is captured into a graph", "stream=-1")
    driver.capture(producers.handle, 0)
    # Another thread's, in the mode in which a wait would end it.
    other = driver.stream()
    driver.capture(other, mode="global")
    assert down(source) == content
    driver.capture(other, 0)


@both
@in_child
def test_pinned_memory_is_copied_as_it_is(platform):
    import ctypes

    import numpy as np
    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import copies, filled
    from fake_driver.scenes.staged import PIECE

    import dlbridge

    source, content = filled(8 * PIECE)
    memory = (ctypes.c_uint8 * (8 * PIECE)).from_address(driver.allocate(0, 8 * PIECE, "host"))
    into = np.frombuffer(memory, "u1")
    assert dlbridge.convert(source, "numpy", device="cpu", out=into) is into
    assert into.tobytes() == content and copies() == 1


@both
@in_child
def test_many_threads_at_a_time_share_the_buffers(platform):
    import threading

    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import down, filled
    from fake_driver.scenes.staged import PIECE

    arrays, wrong = [filled(nbytes * PIECE + 5) for nbytes in range(4, 12)], []

    def work(source, content):
        for _ in range(20):
            if down(source) != content:
                wrong.append(source)

    threads = [threading.Thread(target=work, args=each) for each in arrays]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong and driver.alive("events") == 0
    assert driver.alive("allocations") <= len(arrays) + 16
    # The GIL is not held meanwhile.
    driver.want_gil()
    assert down(*arrays[0][:1]) == arrays[0][1]


@in_child
def test_a_forked_child_forgets_the_buffers():
    import os

    from fake_driver.scenes.downloads import down, filled
    from fake_driver.scenes.staged import PIECE, THREADS

    from dlbridge._core.devices import staging

    source, content = filled(8 * PIECE)
    assert down(source) == content and staging.workers() == THREADS
    child = os.fork()
    if not child:
        os._exit(staging.workers())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert down(source) == content and staging.workers() == THREADS


# ---- into a Tensor, and ahead ----------------------------------------------------------------------------------------

@both
@pytest.mark.parametrize("pieces", [1, 9])
@in_child
def test_a_tensor_takes_host_memory_to_a_device(platform, pieces):
    import numpy as np
    from fake_driver.producers import driver
    from fake_driver.scenes.staged import PIECE, random, refused

    import dlbridge
    from dlbridge.testing import unordered_releases

    driver.make_current(1)
    name_of, number = ("rocm", 10) if driver.hip else ("cuda", 2)
    base = random.integers(0, 250, (PIECE // 64, 64 * pieces), "u1")
    sources = {
        "compact": base, "transposed": base.T, "every second": base[:, ::2], "reversed": base[::-1],
        "repeated": np.broadcast_to(base[:1], base.shape), "empty": base[:0], "a number": base[3, 2],
        "big-endian": base.astype(">f4"), "bools": base > 9, "a part": base[1:, 3:],
    }
    for name, source in sources.items():
        for device, index in (name_of, 1), (f"{name_of}:0", 0), ((number, 1), 1):
            tensor = dlbridge.asdlpack(source, device=device)
            assert (tensor.device, tensor.shape) == (f"{name_of}:{index}", source.shape), name
            assert not tensor.readonly and tensor.dtype == source.dtype.newbyteorder("=")
            assert np.array_equal(dlbridge.convert(tensor, "numpy", device="cpu"), source), name
    bytes_of = dlbridge.asdlpack(np.full(5 * PIECE, 7, "u1").view(bool), device=name_of)
    assert dlbridge.convert(bytes_of, "numpy", device="cpu").view("u1").max() == 1
    del tensor, bytes_of
    assert len(driver.log("MemAllocAsync")) == len(driver.log("MemFreeAsync")) and unordered_releases() == 0
    plan = dlbridge.explain(base, "dlbridge", device=name_of)
    assert plan.action == "copy"
    before = driver.alive("allocations")
    refused(lambda: dlbridge.asdlpack(base, device=f"{name_of}:5"), "is not there")
    driver.fail("MemAllocAsync", 2)
    refused(lambda: dlbridge.asdlpack(base, device=name_of), f"{base.nbytes} bytes were wanted")
    driver.fail("MemAllocAsync", 0)
    driver.fail("MemcpyHtoDAsync", 700)
    refused(lambda: dlbridge.asdlpack(base, device=name_of), "MemcpyHtoD")
    assert driver.alive("allocations") == before


@pytest.mark.needs("numba")
@pytest.mark.parametrize("pieces", [1, 9])
@in_child
def test_batches_are_on_the_device_ahead(pieces):
    import numpy as np
    from fake_driver.producers import Stream, driver
    from fake_driver.scenes.batches import batches, settled
    from fake_driver.scenes.staged import PIECE
    from numba import cuda

    import dlbridge

    stream = cuda.stream()
    for index, batch in enumerate(dlbridge.prefetch(batches(40, pieces * PIECE), "numba", device="cuda", depth=3)):
        assert batch["index"] == index
        for array in batch["x"], batch["y"][0]:
            driver.use(array.__cuda_array_interface__["data"][0], 1, "read")
            driver.use(array.__cuda_array_interface__["data"][0], 1, "write")
            assert driver.value("PointerGetAttribute", 9, array.__cuda_array_interface__["data"][0]) & 0xff == 0
            assert (driver.read(array.__cuda_array_interface__["data"][0], array.size) == bytes([index]) * array.size)
    del batch, array
    settled()
    # An example of the target says its device too, and device= goes before it.
    example = cuda.to_device(np.zeros(2))
    for keywords in {}, {"device": "cuda:1"}:
        [batch] = dlbridge.prefetch(batches(1), example, **keywords)
        assert batch["x"].gpu_data.context.device.id == bool(keywords)
    # What is passed is passed, and a Tensor of the host goes to the device too.
    given = [{"x": dlbridge.asdlpack(np.ones(3)), "words": np.array(["a"]), "object": driver}]
    [batch] = dlbridge.prefetch(given, "numba", device="cuda")
    assert batch["words"].tolist() == ["a"] and batch["object"] is driver
    assert batch["x"].copy_to_host().tolist() == [1, 1, 1]
    del batch, example
    # The stream of the caller, which waits where it is used.
    named = Stream(driver.stream())
    for batch in dlbridge.prefetch(batches(20), "numba", device="cuda:1", stream=-1):
        assert batch["x"].gpu_data.context.device.id == 1
    for batch in dlbridge.prefetch(batches(20), "dlbridge", device="cuda", stream=named):
        driver.use(batch["x"].data_ptr, named.handle, "write")
    del batch
    settled()


@pytest.mark.parametrize("pieces", [1, 9])
@pytest.mark.parametrize("XLA_ORDER", ["any", "C"])
@in_child
def test_batches_are_narrowed_ahead(pieces, XLA_ORDER):
    import threading

    import numpy as np
    import pytest
    from fake_driver import xla
    from fake_driver.producers import driver
    from fake_driver.scenes.batches import settled
    from fake_driver.scenes.staged import PIECE

    import dlbridge

    def rows(large=0):
        for index in range(30):
            wide = np.full((PIECE // 8 * pieces, 2), index + large)
            yield wide[:, 0], wide.T, np.full(3, index, ">f8"), np.full((3, 2), index, "i4").T
    for index, arrays in enumerate(dlbridge.prefetch(rows(), "xla", device="cuda:0", narrow=True)):
        for array, near in zip(arrays, ("i4", "i4", "f4", "i4"), strict=True):
            array.read()
            assert set(np.frombuffer(driver.read(array.start, array.nbytes), near)) == {index}
    assert xla.uploads == 0
    with pytest.raises(dlbridge.CopyRequiredError):
        list(dlbridge.prefetch(rows(), "xla", device="cuda:0", narrow=True, copy=False))
    for keywords, words in ({"narrow": True}, "does not fit into int32"), ({}, "is a type that xla does not have"):
        try:
            list(dlbridge.prefetch(rows(2**40), "xla", device="cuda:0", **keywords))
        except dlbridge.ConversionError as error:
            assert words in str(error), error
        else:
            raise AssertionError(keywords)
    del arrays, array
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()           # it has the batches after the one that failed
    xla.done()
    settled()


@in_child
def test_elements_below_a_byte_are_unpacked_before_they_are_uploaded():
    import numpy as np
    import pytest
    from fake_driver.producers import driver
    from fake_driver.scenes.batches import settled

    import dlbridge
    from dlbridge.testing.producers import Producer

    dlbridge.register_target("padded", lambda tensor: tensor, supports=["PADDED"], dtypes=["uint4"])
    packed = Producer(np.array([0x21, 0x43], "u1"), code=1, bits=4, shape=(4,), strides=(1,))
    [tensor] = dlbridge.prefetch([packed], "padded", device="cuda")
    assert driver.read(tensor.data_ptr, 4) == bytes([1, 2, 3, 4])
    with pytest.raises(dlbridge.CopyRequiredError, match="has its bits in another place"):
        list(dlbridge.prefetch([packed], "padded", device="cuda", copy=False))
    del tensor
    settled()


@pytest.mark.parametrize("XLA_VERSION", ["1", "2"])
@in_child
def test_immutable_arrays_share_what_was_read_ahead_if_they_keep_it(XLA_VERSION):
    import numpy as np
    from fake_driver import xla
    from fake_driver.producers import driver
    from fake_driver.scenes.batches import settled

    import dlbridge

    def rows():
        for index in range(30):
            yield np.full(4, index, "f4"), np.full((4, 2), index, "f4")[:, 0]
    copies = 0
    for index, arrays in enumerate(dlbridge.prefetch(rows(), "xla", device="cuda:0")):
        for array in arrays:
            array.read()
            assert driver.read(array.start, 16) == np.full(4, index, "f4").tobytes()
    del arrays, array
    if XLA_VERSION == "2":
        xla.done()
    assert len(driver.log("MemcpyDtoDAsync")) == (60 if XLA_VERSION == "1" else 0)
    settled()


@both
@in_child
def test_the_uploads_of_a_batch_are_waited_for_once(platform):
    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    where = "rocm" if driver.hip else "cuda"

    def waits(*batches):
        driver.clear()
        given = list(dlbridge.prefetch(batches, "dlbridge", device=where))
        for tensors in given:
            for index, tensor in enumerate(tensors):
                assert driver.read(tensor.data_ptr, tensor.nbytes) == bytes([index]) * tensor.nbytes
        return len(driver.log("StreamSynchronize"))

    arrays = [np.full(100, index, "u1") for index in range(20)]
    assert waits(arrays) == 1 and waits(arrays, [], arrays) == 2
    # A compact copy that is made on the way is gone afterwards, so it is waited for.
    assert waits([np.full((100, 2), index, "u1")[:, 0] for index in range(20)]) == 20
    # So is what is not in a batch: nobody else would wait for it.
    driver.clear()
    dlbridge.asdlpack(arrays[0], device=where)
    assert len(driver.log("StreamSynchronize")) == 1

    # A larger copy is waited for at once, so that its source need not be kept.
    assert waits([np.full(1 << 19, index, "u1") for index in range(3)]) == 3
    # What fails later is an error of its batch.
    driver.fail("StreamSynchronize", 700)
    try:
        list(dlbridge.prefetch([arrays], "dlbridge", device=where))
    except dlbridge.DeviceError as error:
        assert "StreamSynchronize" in str(error)
    else:
        raise AssertionError("the error was lost")


@both
@in_child
def test_uploads_of_a_batch_are_waited_for_before_a_producers_code_runs(platform):
    """It may write to what is read."""
    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    where = "rocm" if driver.hip else "cuda"

    def waits(batch):
        driver.clear()
        [given] = dlbridge.prefetch([batch], "dlbridge", device=where)
        for index, tensor in enumerate(given):
            assert driver.read(tensor.data_ptr, tensor.nbytes) == bytes([index]) * tensor.nbytes
        return len(driver.log("StreamSynchronize"))

    class Kept(np.ndarray):
        def __del__(self):
            waited[int(self[0])] = len(driver.log("StreamSynchronize"))

    class Temporary:
        def __init__(self, index):
            self.index = index

        def __dlpack__(self, **keywords):
            return dlbridge.to_dlpack(np.full(100, self.index, "u1").view(Kept))

        def __dlpack_device__(self):
            return 1, 0

    waited = {}
    # What is read goes after that; without a GIL, when the thread that made it comes to it.
    assert waits([Temporary(index) for index in range(20)]) == 20
    assert sorted(waited) == [*range(20)] and all(seen > index for index, seen in waited.items())
    waited = {}
    driver.fail("MemAllocAsync", 2, after=9)
    try:
        waits([Temporary(index) for index in range(20)])
    except dlbridge.DeviceMemoryError:
        driver.fail("MemAllocAsync", 0)
    assert sorted(waited) == [*range(10)] and all(seen >= min(index + 1, 9) for index, seen in waited.items())


@both
@in_child
def test_a_batch_with_memory_that_turns_out_to_be_on_the_device(platform):
    """It is copied there, and what was uploaded before it is waited for all the same."""
    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    where = "rocm" if driver.hip else "cuda"
    arrays = [np.full(100, index, "u1") for index in range(3)]

    class Box:
        def __init__(self, producer):
            self.producer = producer

    class OnDevice:
        def __dlpack__(self, **keywords):
            return there.__dlpack__(stream=None if driver.hip else 1, max_version=(1, 0))

        def __dlpack_device__(self):
            return there.__dlpack_device__()

    there = dlbridge.asdlpack(np.full(100, 7, "u1"), device=where)
    dlbridge.register_source(Box, lambda box: box.producer)
    driver.clear()
    [batch] = dlbridge.prefetch([[*arrays, Box(OnDevice())]], "dlbridge", device=where)
    assert batch[3].data_ptr != there.data_ptr and driver.read(batch[3].data_ptr, 100) == bytes([7]) * 100
    used = {line.partition("stream=")[2].split()[0] for line in driver.log("MemcpyHtoDAsync")}
    assert used == {line.partition("stream=")[2].split()[0] for line in driver.log("StreamSynchronize")}


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("call", ["convert_tree", "prefetch"])
@in_child
def test_the_columns_of_a_table_are_waited_for_each(call):
    """Code of the table's library runs between them."""
    import numpy as np
    import pyarrow
    from fake_driver.producers import driver

    import dlbridge

    table = pyarrow.table({f"{index}": np.full(100, index, "u1") for index in range(20)})
    driver.clear()
    if call == "prefetch":
        [columns] = dlbridge.prefetch([table], "dlbridge", device="cuda")
    else:
        columns = dlbridge.convert_tree(table, "dlbridge", device="cuda")
    assert len(driver.log("StreamSynchronize")) == 20
    for index, tensor in enumerate(columns.values()):
        assert driver.read(tensor.data_ptr, tensor.nbytes) == bytes([index]) * 100


@both
@in_child
def test_the_small_uploads_of_a_tree_are_waited_for_together(platform):
    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    where = "rocm" if driver.hip else "cuda"

    def waits(tree):
        driver.clear()
        tensors = dlbridge.convert_tree(tree, "dlbridge", device=where)
        waited = len(driver.log("StreamSynchronize"))
        for index, tensor in enumerate(tensors):
            assert driver.read(tensor.data_ptr, tensor.nbytes) == bytes([index % 256]) * tensor.nbytes
        return waited

    def arrays(count, nbytes=100):
        return [np.full(nbytes, index % 256, "u1") for index in range(count)]

    assert [waits(arrays(count)) for count in (0, 1, 20, 256, 257, 600)] == [0, 1, 1, 1, 2, 3]
    # What is large is waited for at once, so that its source need not be kept.
    assert waits(arrays(3, 1 << 18)) == 1 and waits(arrays(3, (1 << 18) + 1)) == 3
    # Nobody else would wait for the arguments of a function, which may write to what it was called with.
    given = arrays(5)
    driver.clear()
    dlbridge.accepts("dlbridge", device=where)(lambda *tensors: None)(*given)
    assert len(driver.log("StreamSynchronize")) == 5


@both
@in_child
def test_who_watches_sees_what_is_copied_to_a_device_and_from_it(platform):
    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    driver.make_current(0)
    where = "rocm:0" if driver.hip else "cuda:0"
    with dlbridge.watch() as copies:
        there = dlbridge.asdlpack(np.zeros(1), device=where)
        dlbridge.convert_tree([np.zeros(2)], "dlbridge", device=where)
        for _ in dlbridge.prefetch([[np.zeros(3)]], "dlbridge", device=where):
            pass
        dlbridge.asdlpack(there, copy=True)
        dlbridge.convert(there, "numpy", device="cpu")
        dlbridge.convert(there, "numpy", device="cpu", out=np.zeros(1))
    seen = sorted((each.device, each.target_device, each.nbytes, each.target, each.path) for each in copies)
    assert seen == sorted([
        ("cpu", where, 8, "dlbridge", ""), ("cpu", where, 16, "dlbridge", "[0]"),
        ("cpu", where, 24, "dlbridge", "[0]"), (where, where, 8, "dlbridge", ""), (where, "cpu", 8, "numpy", ""),
        (where, "cpu", 8, "numpy", "")]), seen


@both
@in_child
def test_no_code_of_a_producer_or_a_container_runs_while_a_tree_is_uploaded(platform):
    """It might write to what is read."""
    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    where = "rocm" if driver.hip else "cuda"

    class Batch:
        def __init__(self, arrays):
            self.arrays = arrays

    class Producer:
        def __dlpack__(self, **keywords):
            seen.append(waited())
            return dlbridge.to_dlpack(np.full(100, 5, "u1"))

        def __dlpack_device__(self):
            return 1, 0

    def waited():
        return len(driver.log("StreamSynchronize"))

    def flatten(batch):
        seen.append(waited())
        return batch.arrays

    def unflatten(batch, arrays):
        seen.append(waited())
        return Batch(arrays)

    dlbridge.register_container(Batch, flatten, unflatten)
    seen, arrays = [], [np.full(100, index, "u1") for index in range(5)]
    dlbridge.convert_tree([*arrays, Producer()], "dlbridge", device=where)
    assert (seen, waited()) == ([1], 2)
    seen = []
    driver.clear()
    copies = Batch([*map(np.copy, arrays)])
    dlbridge.convert_tree([*arrays, copies, *map(np.copy, arrays)], "dlbridge", device=where)
    assert (seen, waited()) == ([1, 2], 3)


@both
@in_child
def test_no_code_of_an_object_that_is_asked_runs_while_a_tree_is_uploaded(platform):
    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    where = "rocm" if driver.hip else "cuda"
    seen, arrays = [], [np.full(100, index, "u1") for index in range(5)]

    def waited():
        return len(driver.log("StreamSynchronize"))

    class Asks:
        def __getattr__(self, name):
            seen.append(waited())
            raise AttributeError(name)

        def __lt__(self, other):
            seen.append(waited())
            return False

    class Derived(np.ndarray):
        @property
        def dtype(self):
            seen.append(waited())
            return super().dtype

    for asks in Asks(), np.array([Asks(), Asks()]), np.zeros(3).view(Derived):
        seen = []
        driver.clear()
        dlbridge.convert_tree([[*arrays, "name", 1.5], asks], "dlbridge", device=where)
        assert set(seen) <= {1} and waited() >= 1, asks
    driver.clear()
    dlbridge.convert_tree([*arrays, "name", 7, None, {"x": [*arrays], "y": (1.5, arrays[0])}], "dlbridge", device=where)
    assert waited() == 1


@both
@in_child
def test_uploads_of_a_tree_are_waited_for_before_an_error_is_raised(platform):
    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    where = "rocm" if driver.hip else "cuda"
    arrays = [np.full(100, index, "u1") for index in range(9)]
    # What that wait says does not take the place of the error.
    for code in 0, 700:
        driver.clear()
        driver.fail("StreamSynchronize", code)
        driver.fail("MemAllocAsync", 2, after=5)
        try:
            dlbridge.convert_tree(arrays, "dlbridge", device=where)
        except dlbridge.DeviceMemoryError as error:
            assert "leaf [5]" in str(error) and len(driver.log("StreamSynchronize")) == 1
        else:
            raise AssertionError("the error was lost")
    driver.fail("MemAllocAsync", 0)
    driver.fail("StreamSynchronize", 0)
    # Nor is an error of what was queued lost.
    driver.fail("StreamSynchronize", 700)
    try:
        dlbridge.convert_tree(arrays, "dlbridge", device=where)
    except dlbridge.DeviceError as error:
        assert "StreamSynchronize" in str(error)
    else:
        raise AssertionError("the error was lost")


@pytest.mark.parametrize("where", [{}, {"device": "cuda:0"}])
@in_child
def test_what_is_on_the_device_is_copied_as_by_convert(where):
    import numpy as np
    from fake_driver.kernels import Array
    from fake_driver.producers import driver

    import dlbridge

    def copies(call):
        driver.clear()
        made = call()
        assert made.readonly is False
        return sum(line.startswith("MemAllocAsync") for line in driver.log())

    def batches():
        driver.make_current(0)          # in the thread that reads
        yield source

    driver.make_current(0)
    source = Array(np.zeros(4, [("a", "i2"), ("b", "f4")])["b"])        # whose strides are no multiples of its items
    by_convert = copies(lambda: dlbridge.convert(source, "dlbridge", **where))
    assert by_convert == copies(lambda: next(dlbridge.prefetch(batches(), "dlbridge", **where))) == 1
    for call in dlbridge.convert, lambda *given, **keywords: next(dlbridge.prefetch(batches(), given[1], **keywords)):
        try:
            call(source, "dlbridge", copy=False, **where)
        except dlbridge.CopyRequiredError:
            pass
        else:
            raise AssertionError("it was copied")


@both
@in_child
def test_memory_that_is_on_the_device_is_handed_out_on_the_callers_stream(platform):
    from fake_driver.producers import Interface, Stream, driver

    import dlbridge

    driver.make_current(0)
    producers, callers = Stream(driver.stream()), Stream(driver.stream())
    start = driver.allocate(0, 16)
    driver.use(start, producers.handle, "write")
    [_tensor] = dlbridge.prefetch([Interface(start, stream=producers.handle)], "dlbridge", stream=callers)
    driver.use(start, callers.handle, "read")
    assert any(f"stream={callers.handle:#x}" in line for line in driver.log("StreamWaitEvent"))
    assert not driver.races()


@both
@pytest.mark.parametrize("copy", [None, True])
@in_child
def test_a_batch_on_the_device_is_the_callers_own(platform, copy):
    """The source writes to its buffer again, on its own stream, as soon as the thread asks for the next batch."""
    import time

    from fake_driver.producers import Interface, Stream, driver

    import dlbridge

    driver.make_current(0)
    producers, callers = Stream(driver.stream()), Stream(driver.stream())
    start = driver.allocate(0, 16)

    def camera(take):
        driver.make_current(0)
        for index in range(6):
            driver.use(start, producers.handle, "write")
            driver.write(start, bytes([index]) * 16)
            yield take(Interface(start, stream=producers.handle))

    for take in lambda source: source, dlbridge.asdlpack:
        for index, tensor in enumerate(dlbridge.prefetch(camera(take), "dlbridge", copy=copy, stream=callers)):
            time.sleep(0.01)        # the source goes on
            assert tensor.data_ptr != start and not tensor.readonly
            assert driver.read(tensor.data_ptr, 16) == bytes([index]) * 16
            driver.use(tensor.data_ptr, callers.handle, "write")
        del tensor
        assert len(driver.log("MemcpyDtoDAsync")) == 6 and driver.races() == []
        driver.clear()
    # copy=False is the caller's word that the memory is new.
    driver.clear()
    for target in "dlbridge", "dlpack":
        [tensor] = dlbridge.prefetch([Interface(start)], target, copy=False)
        assert dlbridge.asdlpack(tensor).data_ptr == start
    assert driver.log("MemcpyDtoDAsync") == []


@both
@in_child
def test_holes_are_not_copied_where_a_library_has_kernels(platform):
    import numpy as np
    from fake_driver.kernels import Array
    from fake_driver.producers import driver

    import dlbridge

    def batches():
        driver.make_current(0)
        yield source

    driver.make_current(0)
    base = np.arange(3000.0).reshape(3, 1000)
    views = {"strided": (base[:, ::100], 30), "transposed": (base.T, 3000),
             "repeated": (np.broadcast_to(base[0], (5, 1000)), 1000)}
    for name, (values, count) in views.items():
        source = Array(values)
        [tensor] = dlbridge.prefetch(batches(), "dlbridge")
        assert np.array_equal(dlbridge.convert(tensor, "numpy", device="cpu"), values), name
        touched = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
        assert touched == count, name


@pytest.mark.needs("numba")
@in_child
def test_memory_that_both_can_read_is_the_callers_own_where_convert_has_it():
    import ctypes

    import numpy as np
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    pinned, managed = driver.allocate(0, 16, "host"), driver.allocate(0, 16, "managed")
    sources = {pinned: dlbridge.from_pointer(pinned, (4,), "float32", device="cuda_host"),
               managed: Interface(managed)}
    for start, source in sources.items():
        for to in "numpy", "numba", "dlbridge":
            def camera(start=start, source=source):
                driver.make_current(0)
                for index in range(5):
                    (ctypes.c_float * 4).from_address(start)[:] = [index] * 4
                    yield source

            for index, array in enumerate(list(dlbridge.prefetch(camera(), to))):
                like = dlbridge.convert(source, to)
                assert type(array) is type(like)
                values = dlbridge.convert(array, "numpy", device="cpu")
                assert values.tolist() == [index] * 4, (start, to)
                assert values.__array_interface__["data"][0] != start
    # So with copy=True.
    for to in "numpy", "numba":
        for source in sources.values():
            assert dlbridge.convert(dlbridge.convert(source, to, copy=True), "numpy", device="cpu").tolist() == [4] * 4
    del array, like, values
    assert np.frombuffer((ctypes.c_float * 4).from_address(pinned), "f4").tolist() == [4] * 4


@both
@pytest.mark.parametrize("target", ["dlbridge", "numpy"])
@in_child
def test_pinned_memory_stays_pinned(platform, target):
    import ctypes
    import gc

    import numpy as np
    from fake_driver.producers import driver

    import dlbridge

    class Pinned:
        """As CuPy's and torch's: memory of the host under the driver's own type."""

        def __dlpack__(self, **keywords):
            return tensor.__dlpack__(max_version=(1, 0))

        def __dlpack_device__(self):
            return tensor.__dlpack_device__()

    driver.make_current(0)
    memory = (ctypes.c_int32 * 12).from_address(driver.allocate(0, 48, "host"))
    buffer = np.frombuffer(memory, "i4").reshape(3, 4)
    where = "rocm_host" if driver.hip else "cuda_host"
    tensor = dlbridge.from_pointer(ctypes.addressof(memory), (4, 3), "int32", strides=(1, 4), device=where)

    def camera():
        for index in range(4):
            buffer[:] = index
            yield Pinned()

    for index, given in enumerate(dlbridge.prefetch(camera(), target)):
        array = dlbridge.convert(given, "numpy")
        assert (array == index).all() and array.shape == (4, 3) and not np.shares_memory(array, buffer)
        start = array.__array_interface__["data"][0]
        assert driver.value("PointerGetAttribute", 2, start) & 0xff == 1, "it is pageable"
        assert target != "dlbridge" or given.device.startswith(where)
    del array, given
    gc.collect()
    assert len(driver.log("MemHostAlloc")) == len(driver.log("MemFreeHost")) == 4
    # Without such memory it is copied all the same.
    driver.fail("MemHostAlloc", 2)
    [given] = dlbridge.prefetch([Pinned()], target)
    assert (dlbridge.convert(given, "numpy") == 3).all()


@in_child
def test_many_batches_leave_nothing_on_the_device():
    import gc

    from fake_driver.producers import driver
    from fake_driver.scenes.batches import batches
    from fake_driver.scenes.staged import refused

    import dlbridge
    from dlbridge.testing import unordered_releases

    before = driver.alive("allocations"), driver.alive("events"), driver.alive("streams")
    for _ in range(5):
        for batch in dlbridge.prefetch(batches(100, 16), "dlbridge", device="cuda", stream=1):
            driver.use(batch["x"].data_ptr, 1, "read")
        del batch
        driver.clear()
    gc.collect()
    alive = driver.alive("allocations"), driver.alive("events"), driver.alive("streams")
    # One stream of dlbridge's own, and the event that is used again.
    assert alive == (before[0], before[1] + 1, before[2] + 1), alive
    assert unordered_releases() == 0
    # An error of the device comes in its place.
    driver.fail("MemcpyHtoDAsync", 700, after=4)
    found = dlbridge.prefetch(batches(9), "dlbridge", device="cuda")
    refused(lambda: [*found], "MemcpyHtoD")


@both
@in_child
def test_batches_become_tensors_of_either_driver(platform):
    from fake_driver.producers import driver
    from fake_driver.scenes.batches import batches, settled

    import dlbridge

    name = "rocm:0" if driver.hip else "cuda:0"
    for copy in None, True, False:      # the copy to the device is always made, and no other
        count, before = 0, len(driver.log("MemAllocAsync"))
        for index, batch in enumerate(dlbridge.prefetch(batches(20), "dlbridge", device=name, copy=copy)):
            assert (batch["x"].device, batch["index"]) == (name, index)
            assert set(dlbridge.convert(batch["y"][0], "numpy", device="cpu").tolist()) == {index}
            count += 1
        assert count == 20 and len(driver.log("MemAllocAsync")) - before == 40 and driver.log("MemcpyDtoDAsync") == []
        # … and back.
        given = list(dlbridge.prefetch([batch], "numpy", device="cpu", copy=copy))
        assert set(given[0]["x"].tolist()) == {19}
        del batch
        settled()


@both
@in_child
def test_a_wait_that_fails_lets_nothing_go_early(platform):
    """Whichever wait of a transfer it is, once or from then on: what is copied stays until the copy has ended."""
    import contextlib

    import numpy as np
    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import filled
    from fake_driver.scenes.staged import PIECE

    import dlbridge

    where = "rocm" if driver.hip else "cuda"
    small, large = np.zeros(100, "u1"), np.zeros(13 * PIECE, "u1")
    ways = {
        "upload": lambda: dlbridge.asdlpack(small, device=where),
        "large upload": lambda: dlbridge.asdlpack(large, device=where),
        "strided upload": lambda: dlbridge.asdlpack(large.reshape(13, -1).T, device=where),
        "download": lambda: dlbridge.convert(filled(100)[0], "numpy", device="cpu"),
        "large download": lambda: dlbridge.convert(filled(13 * PIECE)[0], "numpy", device="cpu"),
        "batches": lambda: list(dlbridge.prefetch([[small, large, small]] * 3, "dlbridge", device=where)),
        "a tree": lambda: dlbridge.convert_tree([small, small.copy(), large], "dlbridge", device=where),
    }
    for name, way in ways.items():
        for times in 1, 2, 0:
            for after in range(8):
                driver.fail("StreamSynchronize", 700, after=after, times=times)
                with contextlib.suppress(dlbridge.DeviceError):
                    way()
                driver.fail("StreamSynchronize", 0)
                assert driver.races() == [], (name, times, after)


@both
@in_child
def test_a_transfer_whose_context_is_refused_leaves_no_event(platform):
    import contextlib

    import numpy as np
    from fake_driver.producers import driver
    from fake_driver.scenes.downloads import filled
    from fake_driver.scenes.staged import PIECE

    import dlbridge

    source, _ = filled(13 * PIECE)
    refused = 0
    for after in range(30):
        driver.fail("CtxGetCurrent", 700, after=after, times=1)
        with contextlib.suppress(dlbridge.DeviceError):
            dlbridge.convert(source, "numpy", device="cpu", out=np.zeros(13 * PIECE, "u1"))
            refused -= 1
        refused += 1
        driver.fail("CtxGetCurrent", 0)
        assert driver.alive("events") == 0, after
    assert refused
