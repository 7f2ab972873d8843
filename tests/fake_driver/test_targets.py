"""Numba's arrays as results, what a Tensor gives of device memory, and targets that have none."""

import pytest
from fake_driver.harness import in_child


@pytest.mark.needs("numba")
@pytest.mark.parametrize("internals", [True, False])
@in_child
def test_numba_gets_the_memory_as_it_is(internals):
    import numpy as np
    from fake_driver.producers import Interface, driver
    from numba import cuda

    import dlbridge
    from dlbridge.libraries import numba_arrays

    if not internals:
        numba_arrays.makers[0, False] = numba_arrays.makers[0, True] = None
    driver.make_current(0)
    bits = np.arange(4096, dtype="u1")
    start = driver.filled(0, bits.tobytes())
    for typestr in (
        "|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16",
    ):
        step = np.dtype(typestr).itemsize
        for offset, shape, strides in [
            (0, (8,), None), (0, (2, 3), None), (0, (3, 2), (step, 3 * step)), (0, (5,), (2 * step,)),
            (4 * step, (5,), (-step,)), (step, (), None),
            (0, (2, 2, 2), (step, 2 * step, 4 * step)),
        ]:
            source = Interface(start + offset, shape, typestr, strides=strides, stream=1)
            for copy in None, False:
                array = dlbridge.convert(source, "numba", copy=copy)
                assert type(array) is cuda.cudadrv.devicearray.DeviceNDArray
                expected = np.ndarray(shape, typestr, bits, offset, strides)
                assert array.__cuda_array_interface__["data"][0] == start + offset
                assert (array.shape, array.strides, array.dtype, array.size) == (
                    expected.shape, expected.strides, expected.dtype, expected.size)
                if min(array.strides or (1,)) > 0:
                    assert array.copy_to_host().tobytes() == expected.tobytes()
    for shape in (0,), (3, 0, 2):
        array = dlbridge.convert(Interface(0, shape), "numba")
        assert (array.shape, array.size, array.copy_to_host().shape) == (shape, 0, shape)

    # What is written on either side is seen on the other.
    array = dlbridge.convert(Interface(start, (4,), "<f4"), "numba")
    array.copy_to_device(np.array([1, 2, 3, 4], "f4"))
    assert np.frombuffer(driver.read(start, 16), "f4").tolist() == [1, 2, 3, 4]

    # An array of Numba's own is itself; by any name.
    own = cuda.to_device(np.arange(3))
    for to in "numba", cuda, cuda.cudadrv.devicearray.DeviceNDArray:
        assert dlbridge.convert(own, to) is own
        assert dlbridge.convert(Interface(start), to).__cuda_array_interface__["data"][0] == start
    assert numba_arrays.in_use() is internals


@pytest.mark.needs("numba")
@in_child(NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT="0")
def test_numbas_arrays_are_made_alike_by_its_class_and_by_its_importer():
    import weakref

    from fake_driver.producers import Interface, Stream, driver

    import dlbridge
    from dlbridge.libraries import numba_arrays

    for device in 0, 1:
        start, then = driver.allocate(device, 4096), Stream(driver.stream(device))
        source = Interface(start, (4, 8), "<f4", strides=(64, 8), stream=1)
        by_importer, by_class = dlbridge.convert(source, "numba"), dlbridge.convert(source, "numba")
        on_stream = dlbridge.convert(source, "numba", stream=then)
        assert by_importer.gpu_data.context is by_class.gpu_data.context is on_stream.gpu_data.context
        assert by_class.gpu_data.context.device.id == device
        assert (by_importer.stream, by_class.stream) == (0, 0) and int(on_stream.stream) == then.handle
        parts = [array[1:, ::2] for array in (by_importer, by_class, on_stream)]
        for part in parts:
            assert part.__cuda_array_interface__["data"][0] == start + 64 and part.strides == (64, 16)
        owners = [weakref.ref(part.gpu_data.owner) for part in parts]
        del by_importer, by_class, on_stream, part
        assert all(owner() is not None for owner in owners)         # a part keeps the memory
        del parts
        assert not any(owner() for owner in owners)
    assert numba_arrays.in_use() and sorted(numba_arrays.makers) == [(0, False), (0, True), (1, False), (1, True)]


@pytest.mark.needs("numba")
@pytest.mark.parametrize("fault", ["raises", "another size", "an untested version"])
@in_child
def test_numbas_importer_is_called_where_its_class_does_otherwise(fault):
    import numba_cuda
    from fake_driver.producers import Interface, driver
    from numba import cuda

    import dlbridge
    from dlbridge.libraries import numba_arrays

    class Other(cuda.cudadrv.driver.MemoryPointer):
        def __init__(self, context, pointer, size, owner=None):
            if fault == "raises":
                raise RuntimeError(fault)
            super().__init__(context, pointer, size + 1, owner)

    driver.make_current(0)
    make = numba_arrays.new_maker

    def with_fault(namespace, index):
        ours, cuda.cudadrv.driver.MemoryPointer = cuda.cudadrv.driver.MemoryPointer, Other
        made = make(namespace, index)

        def call(*given):
            cuda.cudadrv.driver.MemoryPointer = Other
            try:
                return made(*given)
            finally:
                cuda.cudadrv.driver.MemoryPointer = ours
        return call

    if fault == "an untested version":
        numba_cuda.__version__ = "99.0"
    else:
        numba_arrays.new_maker = with_fault
    start = driver.allocate(0, 64)
    for _ in range(3):
        assert dlbridge.convert(Interface(start), "numba").gpu_data.size == 16
    assert not numba_arrays.in_use() and set(numba_arrays.makers.values()) == {None}


@pytest.mark.needs("torch for CPUs")
@in_child
def test_torch_takes_device_memory_and_lets_it_go_in_order():
    import torch
    from fake_driver.producers import Interface, Producer, Stream, driver, held, order

    import dlbridge
    from dlbridge.testing import unordered_releases

    torch.version.cuda = "13.0"     # a build for the CPU imports and lets go of such memory all the same
    driver.make_current(0)
    start, first, then = driver.allocate(1, 64), Stream(driver.stream(1)), Stream(driver.stream(1))
    source = dlbridge.asdlpack(Interface(start, (2, 3), strides=(4, 8)), stream=first)
    driver.clear()
    tensor = dlbridge.convert(source, "torch", stream=then)
    assert (tensor.data_ptr(), tensor.device, tensor.shape, tensor.stride()) == (
        start, torch.device("cuda", 1), (2, 3), (1, 2))
    assert order() == [(first.handle, then.handle)]
    alias = tensor.detach()
    del tensor
    assert order() == [(first.handle, then.handle)]
    driver.clear()
    del alias                                       # by a deleter that torch calls without the GIL
    assert order() == [(then.handle, first.handle)] and unordered_releases() == 0
    producer = Producer(start, (2, 1))
    tensor = dlbridge.convert(producer, "torch")
    assert producer.told == [1] and held == [producer]
    again = dlbridge.asdlpack(tensor)
    assert (again.device, again.data_ptr, again.protocol) == ("cuda:1", start, "exchange_api")
    del tensor
    assert held == [producer]
    del again
    assert held == [] and producer.deleted == 1
    try:                            # pinned memory comes as the host's, as far as torch's own upload
        dlbridge.convert(Interface(driver.allocate(0, 16, "host"), stream=1), "torch", device="cuda:0")
    except dlbridge.errors.DeviceError as error:
        assert "AssertionError: Torch not compiled with CUDA" in str(error), error
    else:
        raise AssertionError


@pytest.mark.needs("numba")
@in_child
def test_numbas_own_arrays_are_ordered_for_a_stream_that_is_named():
    import numpy as np
    from fake_driver.producers import Interface, Stream, driver, ordered
    from numba import cuda

    import dlbridge

    own, then = cuda.stream(), Stream(driver.stream())
    array, plain = cuda.to_device(np.arange(3), stream=own), cuda.to_device(np.arange(3))
    result = []
    assert ordered(lambda: result.append(dlbridge.convert(array, "numba", stream=then))) == [
        (int(own), then.handle)]
    assert result[0] is array
    assert ordered(lambda: dlbridge.convert(array, "numba")) == []
    assert ordered(lambda: dlbridge.convert(array, "numba", stream=-1)) == []
    # What Numba says None of may still be written to on its default stream.
    assert ordered(lambda: dlbridge.asdlpack(plain, stream=then)) == [(1, then.handle)]
    # A result's own methods go on where it is ready.
    made = dlbridge.convert(Interface(driver.allocate(0, 16), stream=1), "numba", stream=then)
    assert made.__cuda_array_interface__["stream"] == then.handle
    driver.clear()
    made.copy_to_host()
    assert f"stream={then.handle:#x}" in driver.log("MemcpyDtoHAsync")[0]


@pytest.mark.needs("ml_dtypes", "numba")
@in_child
def test_what_numba_lacks_is_refused():
    import ml_dtypes
    import numpy as np
    from fake_driver.producers import BFLOAT, Interface, Producer, counts, driver, held

    import dlbridge
    from dlbridge.errors import ConversionError, CopyRequiredError, DeviceError

    driver.make_current(0)
    start = driver.allocate(0, 64)
    dlbridge.convert(Interface(start), "numba")
    before = counts()

    def refused(source, error, *texts, **keywords):
        try:
            dlbridge.convert(source, "numba", **keywords)
        except error as raised:
            assert all(text in str(raised) for text in texts), raised
        else:
            raise AssertionError(texts)

    LACKS = "is a type that numba does not have"
    refused(Producer(start, code=BFLOAT, bits=16), ConversionError, "dtype bfloat16", LACKS)
    for code, name in (7, "float8_e3m4"), (10, "float8_e4m3fn"), (12, "float8_e5m2"):
        refused(Producer(start, code=code, bits=8), ConversionError, f"dtype {name}", LACKS)
    for host in np.zeros(3), bytearray(3), dlbridge.asdlpack(np.zeros(3)):
        refused(host, DeviceError, "device cpu", "is the host's memory, which numba does not have",
                'pass device="cuda"')
    refused(Interface(start), DeviceError, "cuda:0", "is not cuda:1", device="cuda:1")
    refused(Interface(start, typestr=">f4"), CopyRequiredError, "byte order", copy=False)
    refused(Interface(start, readonly=True), ConversionError, 'readonly "error"', readonly="error")
    refused(Interface(start, readonly=True), CopyRequiredError, 'readonly="share"', copy=False)
    refused(np.zeros(3, ml_dtypes.bfloat16), ConversionError, LACKS, device="cuda")
    assert counts() == before and held == []


@pytest.mark.needs("numba")
@in_child(NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT='0')
def test_read_only_memory_is_copied_on_its_device_shared_or_refused():
    from fake_driver.producers import Interface, Stream, counts, driver, fields, order

    import dlbridge

    for device in 0, 1:
        driver.make_current(device)
        start, first = driver.filled(device, bytes(range(64))), Stream(driver.stream(device))
        before = counts()
        for shape, strides, nbytes in [((4, 4), None, 64), ((2, 8), (32, 4), 64), ((2, 2), (4, 8), 16)]:
            source = Interface(start, shape, readonly=True, strides=strides, stream=first.handle)
            shared = dlbridge.convert(source, "numba", readonly="share")
            assert shared.__cuda_array_interface__["data"] == (start, False)
            driver.clear()
            copy = dlbridge.convert(source, "numba")
            face = copy.__cuda_array_interface__
            assert order() == [(first.handle, 1), (1, first.handle)]     # the source may be written to again
            [allocated], [copied] = driver.log("MemAllocAsync"), driver.log("MemcpyDtoDAsync")
            at = fields(allocated)["pointer"]
            assert fields(allocated) == {"pointer": at, "bytes": nbytes, "stream": 1}
            assert fields(copied) == {"to": at, "from": start, "bytes": nbytes, "stream": 1, "device": device}
            assert face["data"] == (at, False) and copy.strides == shared.strides
            assert driver.read(at, nbytes) == driver.read(start, nbytes)
            del shared
            driver.clear()
            del copy
            assert driver.log("MemFreeAsync") == [f"MemFreeAsync pointer={at:#x} stream=0x1"]
            assert counts()[1] == before[1]


@pytest.mark.needs("numba")
@in_child
def test_any_layout_is_copied_on_its_device():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start = driver.filled(0, bytes(range(64)))
    for source in (
        Interface(0, (0,), readonly=True),
        Interface(start, (4,), strides=(8,), readonly=True),
        Interface(start + 16, (2, 3), strides=(16, -4), readonly=True),
    ):
        expected = dlbridge.convert(source, "numpy", device="cpu").tolist()
        for keywords in {}, {"copy": True}:
            made = dlbridge.convert(source, "numba", **keywords)
            assert dlbridge.convert(made, "numpy", device="cpu").tolist() == expected
            assert made.__cuda_array_interface__["data"][0] != source.entries["data"][0] or not made.size


@pytest.mark.needs("numba")
@in_child
def test_numbas_context_is_the_memorys_and_the_current_one_is_put_back():
    from fake_driver.producers import Interface, driver
    from numba import cuda

    import dlbridge

    for device in 0, 1:
        with cuda.gpus[device]:         # Numba makes its context, and the current one with it
            pass
    sources = [Interface(driver.allocate(device, 16), stream=1) for device in (0, 1)]
    for current in 0, 1:
        with cuda.gpus[current]:
            for device in 0, 1:
                before = driver.current_device(), driver.alive("pushed"), cuda.current_context().device.id
                for source in sources[device], dlbridge.asdlpack(sources[device]):
                    array = dlbridge.convert(source, "numba")
                    assert array.gpu_data.context.device.id == device
                    for keywords in {"copy": True}, {"readonly": "share"}:
                        array = dlbridge.convert(source, "numba", **keywords)
                        assert array.gpu_data.context.device.id == device
                    assert (driver.current_device(), driver.alive("pushed"), current) == before


@pytest.mark.needs("numba")
@in_child
def test_the_first_use_of_another_device_leaves_the_current_one():
    import numpy as np
    from fake_driver.control import driver

    import dlbridge

    driver.make_current(0)
    before = driver.current_device(), driver.alive("pushed")
    dlbridge.convert(np.arange(3), "numba", device="cuda:1")
    assert (driver.current_device(), driver.alive("pushed")) == before


@pytest.mark.needs("jax", "numba")
@in_child
def test_host_memory_is_uploaded_where_it_is_asked_for():
    import cuda.core as cuda_core
    import jax.numpy as jnp
    import numpy as np
    from fake_driver.producers import driver
    from numba import cuda

    import dlbridge

    elements = np.arange(12, dtype="f4").reshape(3, 4)
    frozen = elements.copy()
    frozen.flags.writeable = False
    for device in 0, 1:
        with cuda.gpus[device]:         # Numba makes its context, and the current one with it
            pass
    for current in 0, 1:
        with cuda.gpus[current]:
            for device, index in (
                ("cuda:0", 0), ("cuda:1", 1), ((2, 1), 1), ("cuda", current), (cuda.gpus[0], 0),
                (cuda.get_current_device(), current), ("/device:GPU:1", 1), (cuda_core.Device(1), 1),
            ):
                for source in (
                    elements, jnp.asarray(elements), frozen, elements.T, elements.astype(">f4"), elements[2],
                    elements[:0], elements[:, ::2], elements[::-1], np.broadcast_to(elements[0], (5, 4)),
                ):
                    before = driver.current_device(), driver.alive("pushed")
                    array = dlbridge.convert(source, "numba", device=device)
                    assert (driver.current_device(), driver.alive("pushed")) == before
                    assert isinstance(array, cuda.cudadrv.devicearray.DeviceNDArray)
                    expected = np.asarray(source)
                    assert (array.shape, array.dtype) == (expected.shape, np.dtype("f4"))
                    if array.size:
                        assert driver.value("PointerGetAttribute", 9, array.__cuda_array_interface__["data"][0]
                                            ) & 0xff == index
                        assert array.gpu_data.context.device.id == index
                        with cuda.gpus[index]:
                            assert np.array_equal(array.copy_to_host(), expected)
    plan = dlbridge.explain(elements, "numba", device="cuda")
    assert (plan.action, plan.target) == ("copy", "numba")
    for device, said in (
        ("cuda:2", 'device cuda:2: is not there: this machine has cuda:0, cuda:1 (pass device="cuda:0")'),
        ("rocm:0", ""),
    ):
        try:
            dlbridge.convert(elements, "numba", device=device)
        except dlbridge.DeviceError as raised:
            assert said in str(raised), raised
        else:
            raise AssertionError(device)
    driver.fail("MemAlloc", 2)
    try:
        dlbridge.convert(elements, "numba", device="cuda")
    except dlbridge.DeviceMemoryError as raised:
        assert f"numba: device cuda: 48 bytes were wanted, and {1 << 34} are free" in str(raised), raised
        assert isinstance(raised, MemoryError) and "OUT_OF_MEMORY" in str(raised.__cause__)
    else:
        raise AssertionError("memory was found")


@pytest.mark.needs("numba")
@in_child
def test_numba_has_no_host_memory():
    import numpy as np
    from fake_driver.producers import Interface, driver
    from numba import cuda

    import dlbridge

    driver.make_current(0)
    own = cuda.to_device(np.arange(3))
    assert dlbridge.convert(own, "numba", device="cuda:0") is own
    for source in own, *(Interface(driver.allocate(0, 64, kind)) for kind in ("device", "host", "managed")):
        for device in "cpu", (1, 0):
            try:
                dlbridge.convert(source, "numba", device=device)
            except dlbridge.errors.DeviceError as error:
                assert "numba" in str(error)
            else:
                raise AssertionError(source)
    for index in 0, 1:
        managed = Interface(driver.allocate(index, 16, "managed"), stream=1)
        array = dlbridge.convert(managed, "numba", device=f"cuda:{index}")
        assert array.__cuda_array_interface__["data"] == managed.entries["data"]


@pytest.mark.needs("numba")
@in_child
def test_an_array_as_the_target_gives_its_device_and_is_not_kept():
    import weakref

    import numpy as np
    from numba import cuda

    import dlbridge

    with cuda.gpus[1]:
        like = cuda.to_device(np.arange(3))
    reference = weakref.ref(like)
    with cuda.gpus[0]:
        made = dlbridge.convert(np.arange(3), like)
        assert made.gpu_data.context.device.id == 1
        del like
        assert reference() is None


@pytest.mark.needs("torch", "jax", "array_api_strict")
@in_child
def test_device_memory_reaches_the_host_only_where_that_is_asked_for():
    import numpy as np
    from fake_driver.producers import Interface, Stream, driver, fields, order

    import dlbridge
    from dlbridge.errors import CopyRequiredError, DeviceError

    driver.make_current(0)
    for device in 0, 1:
        expected = np.arange(16, dtype="f4")
        start, first = driver.filled(device, expected.tobytes()), Stream(driver.stream(device))
        for stream, on in [(first.handle, first.handle), (None, 2), (1, 1), (2, 2)]:
            source = Interface(start, (16,), stream=stream)
            for to in "numpy", "memoryview", "array_api_strict":
                if to == "array_api_strict":
                    import array_api_strict as to
                try:
                    dlbridge.convert(source, to)
                except DeviceError as error:
                    assert 'pass device="cpu"' in str(error), error
                else:
                    raise AssertionError(to)
            for to in "numpy", "torch", "jax", "memoryview", "dlbridge", "dlpack":
                driver.clear()
                found = dlbridge.convert(source, to, device="cpu")
                assert order() == []
                [copied], [waited] = driver.log("MemcpyDtoHAsync"), driver.log("StreamSynchronize")
                assert fields(waited) == {"stream": on, "device": device}
                assert fields(copied) | {"to": 0} == {
                    "to": 0, "from": start, "bytes": 64, "stream": on, "device": device}
                if to == "dlpack":
                    found = dlbridge.convert(found, "numpy")
                assert np.array_equal(np.asarray(found), expected), to
                found = np.asarray(dlbridge.convert(source, "numpy", device="cpu"))
                found[:] = 7                    # it is the caller's own
                try:
                    dlbridge.convert(source, to, device="cpu", copy=False)
                except CopyRequiredError as error:
                    assert "device" in str(error)
                else:
                    raise AssertionError(to)
            # stream=-1 orders nothing, but what is copied is there.
            driver.clear()
            assert np.array_equal(dlbridge.convert(source, "numpy", device="cpu", stream=-1), expected)
            assert [fields(line)["stream"] for line in driver.log("MemcpyDtoHAsync", "StreamSynchronize")] == [2, 2]
        frozen = Interface(start, (16,), readonly=True)
        assert dlbridge.convert(frozen, "numpy", device="cpu").flags.writeable
        swapped = dlbridge.convert(Interface(start, (16,), ">f4"), "torch", device="cpu")
        assert np.array_equal(swapped.numpy(), expected.view(">f4").astype("f4"))
        # Nothing of the source is kept.
        assert np.array_equal(dlbridge.asdlpack(source, device="cpu"), expected)


@in_child
def test_a_tensor_exports_device_memory_to_the_host_where_that_is_asked_for():
    import numpy as np
    from fake_driver.producers import Interface, Stream, driver, fields, order

    import dlbridge
    from dlbridge.errors import CopyRequiredError, DeviceError

    driver.make_current(0)
    for device in 0, 1:
        expected = np.arange(16, dtype="f4")
        start, first = driver.filled(device, expected.tobytes()), Stream(driver.stream(device))
        tensor = dlbridge.asdlpack(Interface(start, (16,), stream=first.handle))
        for keywords in {"dl_device": (1, 0)}, {"dl_device": (1, 0), "copy": True}:
            for version in None, (1, 3):
                driver.clear()
                capsule = tensor.__dlpack__(max_version=version, **keywords)
                assert [fields(line)["stream"] for line in driver.log("MemcpyDtoHAsync", "StreamSynchronize")] == [
                    first.handle] * 2 and order() == []
                assert np.array_equal(dlbridge.convert(capsule, "numpy"), expected)
        assert np.array_equal(np.from_dlpack(tensor, device="cpu"), expected)
        for keywords in {"dl_device": (1, 0), "copy": False}, {"dl_device": (2, 7)}, {"dl_device": (10, 0)}:
            try:
                tensor.__dlpack__(**keywords)
            except (CopyRequiredError, DeviceError):
                pass
            else:
                raise AssertionError(keywords)


@in_child
def test_a_tensor_copies_on_its_device():
    from fake_driver.producers import Interface, Stream, counts, delete, driver, fields, order, ordered, tensor_of

    import dlbridge

    driver.make_current(0)
    start, first, then = driver.filled(0, b"0123456789abcdef"), Stream(driver.stream()), Stream(driver.stream())
    tensor = dlbridge.asdlpack(Interface(start, stream=first.handle))
    before = counts()
    for copy, shares in (None, True), (False, True), (True, False):
        driver.clear()
        capsule = tensor.__dlpack__(copy=copy, stream=then)
        described = tensor_of(capsule)
        assert order() == [(first.handle, then.handle), (then.handle, first.handle)][:1 if shares else 2]
        assert (described.data == start) == shares == (not driver.log("MemAllocAsync"))
        if not shares:
            lines = driver.log("MemAllocAsync", "MemcpyDtoDAsync")
            assert [fields(line)["stream"] for line in lines] == [then.handle] * 2      # after the wait
            assert driver.calls().index("StreamWaitEvent") < driver.calls().index("MemcpyDtoDAsync")
            assert driver.read(described.data, 16) == b"0123456789abcdef"
        delete(capsule)
        assert counts()[1:] == before[1:]
    copy = dlbridge.asdlpack(Interface(start, stream=first.handle), copy=True)
    assert [fields(line)["stream"] for line in driver.log("MemcpyDtoDAsync")][-1] == first.handle
    assert copy.__cuda_array_interface__["stream"] == first.handle and not copy.readonly
    assert ordered(lambda: copy.__dlpack__(stream=then)) == [(first.handle, then.handle)]

    frozen = dlbridge.asdlpack(Interface(start, stream=1, readonly=True))
    assert dlbridge.asdlpack(frozen, copy=True).readonly is False
    versioned = dlbridge.asdlpack(frozen.__dlpack__(max_version=(1, 0)))
    assert (versioned.data_ptr, versioned.readonly) == (start, True)
    for policy, error in ("share", None), ("error", dlbridge.errors.ConversionError):
        frozen = dlbridge.asdlpack(frozen, readonly=policy)
        try:
            assert tensor_of(frozen.__dlpack__()).data == start and error is None
        except dlbridge.errors.ConversionError:
            assert error


@in_child
def test_a_legacy_capsule_of_read_only_memory_is_a_copy():
    from fake_driver.producers import Interface, driver, tensor_of

    import dlbridge

    driver.make_current(0)
    start = driver.allocate(0, 16)
    frozen = dlbridge.asdlpack(Interface(start, stream=1, readonly=True))
    assert tensor_of(frozen.__dlpack__()).data != start


@in_child
def test_bools_that_come_to_the_host_have_only_the_bytes_0_and_1():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start = driver.filled(0, bytes([0, 1, 2, 255]))
    found = dlbridge.convert(Interface(start, typestr="|b1"), "numpy", device="cpu")
    assert found.view("u1").tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("platform", ["cuda", "hip"])
@in_child
def test_the_pool_keeps_what_is_freed_for_the_next_copy(platform):
    import ctypes

    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)

    def kept(device, value=None):
        pool = driver.value("DeviceGetMemPool", device)
        found = ctypes.c_size_t(value or 0)
        driver.call("MemPoolSetAttribute" if value else "MemPoolGetAttribute", pool, ctypes.c_int(4),
                    ctypes.byref(found))
        return found.value

    for device, before, after in (0, 0, 1 << 30), (1, 1 << 40, 1 << 40):        # another library has set it
        source = Interface(driver.allocate(device, 16), stream=1)
        if before:
            kept(device, before)
        driver.clear()
        for _ in range(2):
            dlbridge.asdlpack(source, copy=True)
        assert len(driver.log("DeviceGetMemPool")) == 1
        assert kept(device) == after
    for call in "DeviceGetMemPool", "MemPoolGetAttribute", "MemPoolSetAttribute":
        driver.fail(call, 801)
    assert dlbridge.asdlpack(source, copy=True).nbytes == 16


@in_child
def test_a_copy_is_ready_on_the_stream_on_which_it_was_made():
    from fake_driver.producers import Interface, driver, fields, ordered

    import dlbridge

    driver.make_current(0)
    start, then = driver.allocate(0, 16), driver.stream()
    for entries, stream in [({"stream": None}, None), ({"stream": driver.stream()}, -1)]:
        driver.clear()
        copy = dlbridge.asdlpack(Interface(start, **entries), copy=True, stream=stream)
        on = fields(driver.log("MemcpyDtoDAsync")[0])["stream"]
        assert copy.__cuda_array_interface__["stream"] == on
        assert ordered(lambda: copy.__dlpack__(stream=then)) == [(on, then)]


@in_child
def test_the_source_of_a_copy_may_be_written_when_the_call_returns():
    from fake_driver.producers import Interface, driver, order

    import dlbridge

    driver.make_current(0)
    first, then = driver.stream(), driver.stream()
    source = Interface(driver.allocate(0, 16), stream=first)
    driver.clear()
    copy = dlbridge.asdlpack(source, copy=True, stream=then)
    assert order() == [(first, then), (then, first)]


@in_child
def test_a_pickle_holds_the_elements():
    import pickle

    import numpy as np
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start = driver.filled(0, b"0123456789abcdef")
    for strides in None, (-4,):
        tensor = dlbridge.asdlpack(Interface(start + 12 if strides else start, strides=strides))
        copy = pickle.loads(pickle.dumps(tensor))
        assert (copy.device, copy.shape, copy.dtype) == ("cpu", (4,), "float32")
        expected = np.frombuffer(b"0123456789abcdef", "f4")[::-1 if strides else 1]
        assert np.asarray(copy).tobytes() == expected.tobytes()


@pytest.mark.needs("cuda")
@in_child
def test_cuda_cores_buffers_reach_the_host():
    from cuda.core import Device
    from cuda.core.utils import StridedMemoryView
    from fake_driver.producers import driver

    import dlbridge

    device = Device(0)
    device.set_current()
    buffer = device.allocate(16, stream=device.create_stream())
    driver.write(int(buffer.handle), b"0123456789abcdef")
    for source in buffer, StridedMemoryView.from_dlpack(buffer, stream_ptr=-1):
        found = dlbridge.convert(source, "numpy", device="cpu")
        assert found.tobytes() == b"0123456789abcdef"


@pytest.mark.needs("numba")
@in_child
def test_a_tensor_hands_on_the_object_of_the_stream():
    from fake_driver.producers import Interface, Stream, driver, ordered

    import dlbridge

    driver.make_current(0)
    first, then = Stream(driver.stream()), Stream(driver.stream())
    tensor = dlbridge.asdlpack(Interface(driver.allocate(0, 16)), stream=first)
    result = [dlbridge.convert(tensor, "numba", stream=then)]
    assert ordered(result.clear) == [(then.handle, first.handle)]


@pytest.mark.needs("a GIL")      # without it, the thread that made an object lets it go
@in_child
def test_a_copy_on_a_threads_own_stream_is_freed_where_all_wait():
    import threading

    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    result = [dlbridge.asdlpack(Interface(driver.allocate(0, 16)), stream=2, copy=True)]
    thread = threading.Thread(target=result.clear)
    thread.start()
    thread.join()
    assert driver.log("MemFreeAsync")[0].endswith(" stream=0x1")


@in_child
def test_another_threads_own_stream_is_not_this_ones():
    import threading

    from fake_driver.producers import Interface, driver, ordered

    import dlbridge

    driver.make_current(0)
    then, orders = driver.stream(), []
    tensor = dlbridge.asdlpack(Interface(driver.allocate(0, 16), stream=1), stream=2)

    def work():
        driver.make_current(0)
        for stream in 2, then:
            orders.append(ordered(lambda: tensor.__dlpack__(stream=stream)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    # The legacy default stream waits for every thread's own; without its help nothing can be recorded there.
    assert orders == [[(1, 2)], [(1, then)]]


@in_child
def test_an_event_that_is_gone_is_made_anew():
    from fake_driver.producers import Interface, driver, ordered

    import dlbridge

    driver.make_current(0)
    first, then = driver.stream(), driver.stream()
    source = Interface(driver.allocate(0, 16), stream=first)
    dlbridge.asdlpack(source, stream=then)
    driver.fail("EventRecord", 400, times=1)        # as after a device's reset
    try:
        dlbridge.asdlpack(source, stream=then)
    except dlbridge.errors.DeviceError:
        pass
    assert ordered(lambda: dlbridge.asdlpack(source, stream=then)) == [(first, then)]


@in_child
def test_memory_that_a_device_would_have_to_rearrange_is_refused_before_it_is_copied():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start = driver.allocate(0, 256)
    dlbridge.register_target("plain", lambda tensor: tensor)
    for shape, strides in ((4,), (-4,)), ((4,), (6,)):
        source = Interface(start + 64, shape, strides=strides)
        for copy in None, True, False:
            plan = dlbridge.explain(source, "plain", copy=copy)
            # CuPy has no strides off the item size either.
            assert (plan.action, plan.hint) == ("refuse", (
                "copy it with the library that made it, x.copy() or so" if copy is False or strides == (6,) else
                "copy it with the library that made it, or import cupy, whose kernels then make a compact copy"))
            try:
                dlbridge.convert(source, "plain", copy=copy)
            except (dlbridge.CopyRequiredError, dlbridge.DeviceError) as error:
                assert isinstance(error, dlbridge.CopyRequiredError) == (copy is False)
                assert (error.field, error.reason) == ("strides", plan.reason)
            else:
                raise SystemExit(f"{strides} were taken")
    assert driver.log("MemAllocAsync") == []


@in_child
def test_memory_of_a_device_that_is_only_misaligned_is_copied_as_it_lies():
    from fake_driver.producers import Interface, driver

    import dlbridge

    driver.make_current(0)
    start = driver.filled(0, bytes(range(256)))
    dlbridge.register_target("aligned", lambda tensor: tensor, alignment=64, supports=["NEGATIVE_STRIDES"])
    for shape, strides in ((4,), None), ((4,), (-4,)):
        tensor = dlbridge.convert(Interface(start + 16, shape, strides=strides), "aligned")
        assert tensor.data_ptr % 64 == (12 if strides else 0)
