"""Shared memory of a device: two processes have the same pages."""

import pytest
from fake_driver.harness import in_child, run

both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@in_child
def test_processes_see_each_others_writes():
    from fake_driver.scenes.shared import BASE, serve, spawned, values, write
    from support.sharing import message

    import dlbridge

    ours, process = spawned(serve)
    whole = dlbridge.shared(BASE, device="cuda")
    parts = {
        "whole": whole, "again": whole, "rows": dlbridge.asdlpack(whole, copy=False),
        "new": dlbridge.shared_empty((3, 5), "int16", device="cuda:1"),
        "read-only": dlbridge.shared(BASE, device="cuda:0", readonly=True),
    }
    for name, tensor in parts.items():
        before = values(tensor).tolist()
        assert len(message(tensor)) < 1000
        ours.send(tensor)
        assert ours.recv() == (tensor.device, name == "read-only", before)
        ours.recv()
        assert (values(tensor) == 7).all() == (name != "read-only")
        write(tensor, 3)
    ours.send(None)
    process.join()
    assert process.exitcode == 0


@in_child
def test_memory_outlives_whoever_made_it():
    from fake_driver.scenes.shared import alive, make_and_end, make_and_wait, spawned, values

    before = None
    for target in make_and_end, make_and_wait:
        ours, process = spawned(target)
        made = ours.recv()
        if target is make_and_wait:
            process.kill()
        process.join()
        assert (values(made) == 5).all()
        del made
        assert before in (None, alive())
        before = alive()


@in_child
def test_a_process_that_sees_the_devices_in_another_order_has_it_on_the_same_one():
    import os

    from fake_driver.scenes.shared import BASE, serve, spawned

    import dlbridge

    tensor = dlbridge.shared(BASE, device="cuda:1")
    os.environ["FAKE_OTHER_ORDER"] = "1"
    ours, process = spawned(serve)
    del os.environ["FAKE_OTHER_ORDER"]
    ours.send(tensor)
    assert ours.recv() == ("cuda:0", False, BASE.tolist())
    ours.recv()
    ours.send(None)
    process.join()


@in_child
def test_it_is_copied_once_in_the_order_of_its_stream():
    import numpy as np
    from fake_driver.producers import fields, order
    from fake_driver.scenes.shared import BASE, alive, driver, on_device, values

    import dlbridge

    driver.make_current(0)
    dlbridge.shared(BASE, device="cuda")            # the stream of dlbridge's own is there
    stream, before = driver.stream(), alive()
    for entries in {}, {"strides": (4, 8 * 4)}, {"strides": (2 * 4, 8 * 4)}:
        shape = (4, *BASE.shape[1:]) if entries.get("strides") == (8, 32) else BASE.shape
        source = on_device(BASE, stream)
        source.entries |= {"shape": shape, **entries}
        driver.clear()
        tensor = dlbridge.shared(source)
        copied, = driver.log("MemcpyDtoDAsync")
        own = fields(driver.log("StreamWaitEvent")[-1])["stream"]
        assert order() == [(stream, own)] and fields(copied)["stream"] == stream
        assert not driver.log("StreamSynchronize")          # nobody waits on the host
        steps = [step // 4 for step in entries["strides"]] if entries else (BASE.shape[1], 1)
        assert (tensor.shape, tensor.strides, tensor.device) == (shape, (*steps,), "cuda:0")
        expected = np.lib.stride_tricks.as_strided(BASE, shape, [step * 4 for step in steps])
        assert np.array_equal(values(tensor), expected)
        start = source.entries["data"][0]
        del source
        driver.use(start, stream, "write")                  # its producer may go on, on its stream
        driver.free(start)
        del tensor
    assert alive() == before and driver.races() == []


@in_child
def test_the_sender_waits_for_whatever_writes_to_it():
    from fake_driver.producers import Stream, delete
    from fake_driver.scenes.shared import BASE, driver
    from support.sharing import message, received

    import dlbridge

    driver.make_current(0)
    tensor = dlbridge.shared(BASE, device="cuda")
    streams = [Stream(driver.stream()) for _ in range(2)]
    capsules = [tensor.__dlpack__(stream=stream.handle) for stream in streams]
    driver.use(tensor.data_ptr, streams[0].handle, "write")
    sent = message([tensor, dlbridge.asdlpack(tensor, copy=False)])
    assert len(driver.log("CtxSynchronize")) == 1
    assert received(sent)[0].data_ptr == tensor.data_ptr
    driver.use(tensor.data_ptr, driver.stream(), "write")       # as another process does, which knows of no stream here
    assert driver.races() == []
    for capsule in capsules:
        delete(capsule)


@in_child
def test_it_is_unmapped_after_its_last_use():
    from fake_driver.producers import Stream, delete
    from fake_driver.scenes.shared import BASE, alive, driver

    import dlbridge

    driver.make_current(0)
    dlbridge.shared(BASE, device="cuda")
    stream, before = Stream(driver.stream()), alive()
    tensor = dlbridge.shared(BASE, device="cuda")
    capsule = tensor.__dlpack__(stream=stream.handle)
    start = tensor.data_ptr
    del tensor
    driver.use(start, stream.handle, "write")
    driver.clear()
    delete(capsule)
    assert driver.log("MemUnmap") and driver.races() == [] and alive() == before


@in_child
def test_what_is_used_without_an_order_is_unmapped_once_the_whole_device_was_waited_for():
    from fake_driver.producers import delete
    from fake_driver.scenes.shared import BASE, alive, driver

    import dlbridge

    driver.make_current(0)
    kept, stream = dlbridge.shared(BASE, device="cuda"), driver.stream()
    before = alive()
    for fails in False, True:
        tensor = dlbridge.shared(BASE, device="cuda")
        capsule = tensor.__dlpack__(stream=-1)
        driver.use(tensor.data_ptr, stream, "write")
        driver.clear()
        driver.fail("CtxSynchronize", 719 if fails else 0)
        del tensor
        delete(capsule)
        assert len(driver.log("CtxSynchronize")) == 1 and driver.races() == []
        driver.fail("CtxSynchronize", 0)
        assert (alive()[:-1] == before[:-1]) == (not fails)         # its descriptor is closed
    dlbridge.shared(BASE, device="cuda")
    assert len(driver.log("CtxSynchronize")) == 1 and driver.races() == []
    kept.owner.as_sent()
    assert alive() == before and driver.races() == []


@in_child
def test_what_cannot_be_waited_for_is_unmapped_later():
    from fake_driver.scenes.shared import BASE, alive, driver

    import dlbridge

    nothing = alive()
    tensor = dlbridge.shared(BASE, device="cuda")
    before = alive()
    driver.fail("StreamSynchronize", 719)
    del tensor
    driver.fail("StreamSynchronize", 0)
    assert alive() == [*before[:-1], before[-1] - 1]            # its descriptor is closed
    dlbridge.shared(BASE, device="cuda")
    assert alive() == nothing


@pytest.mark.parametrize("MODE", ["thread", "global"])
@in_child
def test_memory_that_goes_ends_no_capture(MODE):
    import ctypes

    import pytest
    from fake_driver.producers import delete
    from fake_driver.scenes.shared import BASE, alive, driver
    from support.sharing import message

    import dlbridge

    driver.make_current(0)
    before = alive()
    driver.fail("CtxSynchronize", 719)
    delete(dlbridge.shared(BASE, device="cuda").__dlpack__(stream=-1))      # it waits, and is not waited for unasked
    driver.fail("CtxSynchronize", 0)

    def capture_status(stream):
        status = ctypes.c_int()
        assert driver.call("StreamIsCapturing", stream, ctypes.byref(status)) == 0
        return status.value

    tensor = dlbridge.shared(BASE, device="cuda")
    captured = driver.stream()
    driver.capture(captured, mode=MODE)
    dlbridge.shared(BASE, device="cuda")
    assert capture_status(captured) == 1
    with pytest.raises(dlbridge.DeviceError, match="STREAM_CAPTURE"):       # the only one that waits for the device
        message(tensor)
    driver.capture(captured, 0)
    tensor.owner.as_sent()
    del tensor
    assert alive() == before


@in_child
def test_pinned_memory_is_waited_for():
    from fake_driver.scenes.shared import BASE, Interface, driver, values

    import dlbridge

    driver.make_current(0)
    stream, start = driver.stream(), driver.filled(0, BASE.tobytes(), "host")
    driver.use(start, stream, "write")
    pinned = Interface(start, BASE.shape, "<f4", stream=stream)
    assert values(dlbridge.shared(pinned, device="cuda")).tolist() == BASE.tolist()
    assert driver.races() == []


@both
@in_child
def test_what_has_no_descriptor_is_sent_by_value(platform):
    import pytest
    from fake_driver.scenes.shared import BASE, driver, on_device, values
    from support.sharing import array_of, message, received

    import dlbridge

    name = "rocm" if driver.hip else "cuda"
    if not driver.hip:
        small = dlbridge.shared(BASE[:1], device="cuda")            # below a granule
        assert (small.device, values(small).tolist()) == ("cuda:0", BASE[:1].tolist())
        driver.descriptors(False)
    source = on_device()
    if driver.hip:
        source = dlbridge.from_pointer(source.entries["data"][0], BASE.shape, "float32", device="rocm")
    for tensor in dlbridge.shared(source), dlbridge.shared(source, device=name):
        assert tensor.data_ptr == dlbridge.asdlpack(source).data_ptr
        there = received(message(tensor))
        assert (there.device, there.pickled_on) == ("cpu", f"{name}:0")
        assert array_of(there).tolist() == BASE.tolist()
    refused = rf"device {name}:0: has no memory that other processes can map \(pass device=\"cpu\"\)"
    for share in (lambda **keywords: dlbridge.shared(source, readonly=True, **keywords),
                  lambda device=f"{name}:0": dlbridge.shared_empty(4, device=device)):
        with pytest.raises(dlbridge.DeviceError, match=refused):
            share()
        assert share(device="cpu").device == "cpu"


@in_child
def test_what_is_shared_already_is_not_copied():
    import pytest
    from fake_driver.scenes.shared import BASE, driver, on_device

    import dlbridge

    tensor = dlbridge.shared(BASE, device="cuda")
    driver.clear()
    for same in dlbridge.shared(tensor), dlbridge.shared(tensor, device="cuda"), dlbridge.shared(tensor, copy=False):
        assert same is tensor
    assert not driver.log("MemcpyDtoDAsync")
    for changed in dlbridge.shared(tensor, copy=True), dlbridge.shared(tensor, readonly=True):
        assert changed.data_ptr != tensor.data_ptr
    assert dlbridge.shared(tensor, device="cpu").device == "cpu"
    for other in on_device(), BASE:
        with pytest.raises(dlbridge.CopyRequiredError, match="shared: copy False"):
            dlbridge.shared(other, device="cuda", copy=False)
    with dlbridge.watch() as copies:
        dlbridge.shared(on_device())
    copy, = copies
    assert (copy.nbytes, copy.target) == (BASE.nbytes, "shared memory")
    with pytest.raises(dlbridge.DeviceError, match="cuda_host:0: has no memory that other processes can map"):
        dlbridge.shared_empty(4, device="cuda_host:0")
    empty = dlbridge.shared_empty((0, 3), device="cuda")
    assert (empty.shape, empty.device, dlbridge.shared(empty)) == ((0, 3), "cuda:0", empty)


MAPPING = ["MemAddressReserve", "MemMap", "MemSetAccess"]
MAKING = ["MemGetAllocationGranularity", "MemCreate", "MemExportToShareableHandle", "DeviceGetAttribute"]
FILLING = ["MemcpyDtoDAsync", "MemcpyHtoDAsync", "MemsetD8Async"]
ORDERING = ["EventRecord", "StreamWaitEvent"]


@pytest.mark.parametrize("CALL", MAKING + MAPPING + FILLING + ORDERING)
@in_child
def test_a_call_that_fails_leaves_nothing(CALL):
    from fake_driver.scenes.shared import BASE, alive, driver, on_device, values

    import dlbridge

    stream = driver.stream()
    source = on_device(stream=stream)
    dlbridge.shared(source)
    before, failures = alive(), 0
    for share in (lambda: dlbridge.shared(source), lambda: dlbridge.shared(BASE, device="cuda"),
                  lambda: dlbridge.shared_empty(BASE.shape, "float32", device="cuda")):
        driver.fail(CALL, 719)
        try:
            share()
        except dlbridge.DeviceError as error:
            assert "LAUNCH_FAILED" in str(error), error
            failures += 1
        driver.fail(CALL, 0)
        assert alive() == before
        values(share())
    assert failures


@pytest.mark.parametrize("CALL", ["DeviceGetUuid", "MemImportFromShareableHandle", *MAPPING])
@in_child
def test_a_receiver_that_fails_leaves_nothing(CALL):
    import pytest
    from fake_driver.scenes.shared import BASE, alive, driver
    from support.sharing import message, received

    import dlbridge

    before = alive()
    for _ in range(3):
        sent = message(dlbridge.shared(BASE, device="cuda"))        # which keeps nothing mapped here
        alive()
        driver.fail(CALL, 719)
        with pytest.raises(dlbridge.DeviceError, match="LAUNCH_FAILED"):
            received(sent)
        driver.fail(CALL, 0)
        assert alive() == before


@in_child
def test_without_memory_it_says_how_much_is_free():
    import pytest
    from fake_driver.scenes.shared import BASE, alive, driver

    import dlbridge

    before = alive()
    with pytest.raises(dlbridge.DeviceMemoryError, match=f"{1 << 40} bytes were wanted, and {1 << 34} are free"):
        dlbridge.shared_empty(1 << 40, "uint8", device="cuda")
    driver.fail("MemCreate", 2)
    with pytest.raises(MemoryError, match="cuMemCreate"):
        dlbridge.shared(BASE, device="cuda")
    driver.fail("MemCreate", 0)
    for call in "MemAddressReserve", "MemMap", "MemSetAccess":
        driver.fail(call, 2)
        with pytest.raises(MemoryError, match=call):
            dlbridge.shared(BASE, device="cuda")
        driver.fail(call, 0)
        assert alive() == before


@in_child
def test_memory_that_waits_is_given_back_where_it_is_wanted():
    from fake_driver.producers import delete
    from fake_driver.scenes.shared import BASE, alive, driver

    import dlbridge

    before = alive()
    driver.fail("CtxSynchronize", 719)
    delete(dlbridge.shared(BASE, device="cuda").__dlpack__(stream=-1))
    driver.fail("CtxSynchronize", 0)
    assert alive() != before
    driver.fail("MemCreate", 2, times=1)
    dlbridge.shared(BASE, device="cuda")
    assert alive() == before


@in_child
def test_a_descriptor_of_something_else_is_refused():
    import os

    import pytest
    from fake_driver.scenes.shared import GRANULE, alive

    import dlbridge
    from dlbridge.processes.device_segment import DeviceSegment

    before = alive()
    _, nbytes, uuid = dlbridge.shared_empty(4, device="cuda").owner.as_sent()
    for size, of, what in (nbytes, uuid, "CUDA_ERROR_INVALID_VALUE"), (GRANULE - 1, uuid, "size"), (
            0, uuid, "INVALID"), (nbytes, b"x" * 16, "is not seen by this process"):
        arriving = DeviceSegment()
        arriving.take(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(dlbridge.DLBridgeError, match=what):
            arriving.arrived(os.urandom(16), size, of)
        del arriving
    assert alive() == before


@in_child
def test_memory_of_the_host_with_the_label_of_a_gpu_is_not_shared():
    from fake_driver.scenes.shared import BASE

    import dlbridge

    host = dlbridge.shared(BASE)
    labelled = dlbridge.from_pointer(host.data_ptr, BASE.shape, "float32", device="cuda", owner=host)
    there = dlbridge.shared(BASE, device="cuda:1")
    other = dlbridge.from_pointer(there.data_ptr, BASE.shape, "float32", device="cuda:0", owner=there)
    for tensor in labelled, other:
        assert dlbridge.processes.segment.sendable(tensor) is None
    assert dlbridge.processes.segment.sendable(there) is not None


@in_child
def test_a_process_that_was_forked_is_told_so():
    import pytest
    from fake_driver.scenes.shared import BASE, driver
    from support.sharing import message

    import dlbridge

    tensor = dlbridge.shared(BASE, device="cuda")
    driver.fail("CtxGetCurrent", 3)         # as the real one does there
    with pytest.raises(dlbridge.DeviceError, match="by spawn or forkserver"):
        message(tensor)
    driver.fail("CtxGetCurrent", 0)


@in_child
def test_a_gpu_that_is_not_there():
    import pytest
    from fake_driver.scenes.shared import BASE

    import dlbridge

    for share in dlbridge.shared, dlbridge.shared_empty:
        with pytest.raises(dlbridge.DeviceError, match="this machine has cuda:0, cuda:1"):
            share(BASE if share is dlbridge.shared else 4, device="cuda:2")
        with pytest.raises(dlbridge.DeviceError, match=r"libamdhip64|has no memory that other processes can map"):
            share(BASE if share is dlbridge.shared else 4, device="rocm")


NO_CALL = "0 calls\n"


@pytest.mark.parametrize(
    ("CODE", "says"),
    [
        ("made = share()", NO_CALL),
        ("sys.kept = share()", ""),
        ("cycle = [share()]; cycle.append(cycle)", NO_CALL),
        ("multiprocessing.current_process().kept = share()", ""),
        ("made = share(); atexit.register(driver.deinitialize)", NO_CALL),
    ],
)
def test_it_may_live_until_the_end(CODE, says):
    ended = run(f"import atexit, multiprocessing, sys\n"
                f"from fake_driver.scenes.shared_at_the_end import driver, share\n{CODE}\n")
    assert (ended.stdout, ended.stderr) == (says, "")
