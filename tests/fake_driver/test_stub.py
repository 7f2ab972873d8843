"""The fake GPU driver is what dlbridge's tests take it for, and real libraries work on it."""

import pytest
from fake_driver.harness import in_child, run

SYMBOLS = {
    "cuda": """
        cuInit cuDeviceGet cuDeviceGetCount cuDeviceGetAttribute cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2
        cuCtxGetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuPointerGetAttribute cuEventCreate cuEventDestroy_v2
        cuEventRecord cuStreamWaitEvent cuStreamIsCapturing cuStreamSynchronize cuMemcpyAsync cuGetErrorName
        cuGetErrorString
    """,
    "hip": """
        hipInit hipDeviceGet hipGetDeviceCount hipDeviceGetAttribute hipDevicePrimaryCtxRetain
        hipDevicePrimaryCtxRelease hipCtxGetCurrent hipCtxPushCurrent hipCtxPopCurrent hipPointerGetAttribute
        hipEventCreateWithFlags hipEventDestroy hipEventRecord hipStreamWaitEvent hipStreamIsCapturing
        hipStreamSynchronize hipMemcpyAsync hipGetErrorName hipGetErrorString
    """,
}
both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@pytest.mark.parametrize(("platform", "names"), [(name, names.split()) for name, names in SYMBOLS.items()], ids=SYMBOLS)
@in_child
def test_every_symbol_is_found_and_gives_its_code_while_the_driver_shuts_down(platform, names):
    import ctypes

    from fake_driver.control import driver

    driver.call("Init", 0)
    driver.deinitialize()
    for name in names:
        function = getattr(driver.library, name)
        if "GetError" not in name:
            driver.clear()
            assert function(*[ctypes.c_size_t(0)] * 6) == 4, name
            [line] = driver.log()
            assert line.endswith(" -> 4"), line


@pytest.mark.parametrize(("platform", "absent"), [(None, "cuda"), (None, "hip"), ("hip", "cuda"), ("cuda", "hip")])
@in_child
def test_no_other_fake_driver_is_found(platform, absent):
    import ctypes

    from fake_driver.harness import LIBRARIES

    try:
        library = ctypes.CDLL(LIBRARIES[absent])
    except OSError:
        pass
    else:
        assert not hasattr(library, "fake_log")         # the driver of this machine


def test_what_a_child_says_is_in_the_failure():
    with pytest.raises(AssertionError, match=r"(?s)returned 1.*said.*ZeroDivisionError"):
        run("print('said'); 1 / 0")
    with pytest.raises(AssertionError, match="died of SIGABRT"):
        run("import os; os.abort()")
    assert run("print('said'); raise SystemExit(3)", returns=3, SAID="x").stdout == "said\n"


@both
@in_child
def test_errors_have_their_names(platform):
    import ctypes

    from fake_driver.control import driver

    def say(call, code):
        function = getattr(driver.library, driver.symbol(call))
        if driver.hip:
            function.restype = ctypes.c_char_p
            return function(code).decode()
        text = ctypes.c_char_p()
        failed = function(code, ctypes.byref(text))
        assert failed == (1 if text.value is None else 0)
        return text.value and text.value.decode()

    for code, cuda, hip in [
        (0, "CUDA_SUCCESS", "hipSuccess"),
        (1, "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue"),
        (4, "CUDA_ERROR_DEINITIALIZED", "hipErrorDeinitialized"),
        (201, "CUDA_ERROR_INVALID_CONTEXT", "hipErrorInvalidContext"),
        (400, "CUDA_ERROR_INVALID_HANDLE", "hipErrorInvalidHandle"),
        (906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "hipErrorStreamCaptureImplicit"),
        (12345, None, "hipErrorUnknown"),
    ]:
        assert say("GetErrorName", code) == (hip if driver.hip else cuda)
    assert "capture" in say("GetErrorString", 906)
    assert driver.log("GetErrorString") == ["GetErrorString code=906"]


@both
@in_child
def test_memory_is_known_by_its_address(platform):
    import ctypes

    from fake_driver.control import driver

    driver.make_current(1)

    def attribute(number, pointer):
        value = ctypes.c_int(-7)
        return driver.call("PointerGetAttribute", ctypes.byref(value), number, pointer), value.value & 0xff

    for device in 0, 1:
        for kind, type in {"host": 1, "device": 2, "managed": 3 if driver.hip else 2}.items():
            start = driver.allocate(device, 4096, kind)
            for pointer in start, start + 1, start + 4095:
                assert attribute(2, pointer) == (0, type)
                assert attribute(9, pointer) == (0, device)
                assert attribute(8, pointer)[1] & 1 == (kind == "managed")
            driver.free(start)
            assert attribute(2, start)[0] == 1
    start = driver.allocate(0, 4096)
    assert attribute(2, start + 4096)[0] == attribute(2, id(driver))[0] == attribute(2, 0)[0] == 1
    assert driver.log()[-1] == "PointerGetAttribute attribute=2 pointer=0x0 -> 1"
    assert driver.alive("allocations") == 1


@both
@in_child
def test_copies(platform):
    import ctypes

    from fake_driver.control import driver

    driver.make_current(0)
    start, stream = driver.filled(1, b"abcdefgh"), driver.stream(0)
    target = ctypes.create_string_buffer(6)
    assert driver.call("MemcpyAsync", ctypes.addressof(target), start + 2, 6, stream) == 0
    assert target.raw == driver.read(start + 2, 6) == b"cdefgh"
    assert driver.log("MemcpyAsync") == [
        f"MemcpyAsync to={ctypes.addressof(target):#x} from={start + 2:#x} bytes=6 stream={stream:#x} device=0"
    ]
    assert driver.call("MemcpyAsync", ctypes.addressof(target), start + 3, 6, stream) == 1      # past its end


@both
@pytest.mark.parametrize(("kind", "out", "returns"), [
    ("host", False, 0), ("managed", False, 0),
    ("device", False, -11), ("device", True, -11),      # no copy leaves it open
])
@in_child
def test_memory_of_a_device_is_out_of_the_processors_reach(platform, kind, out, returns):
    import ctypes

    from fake_driver.control import driver

    driver.make_current(0)
    start, target = driver.allocate(0, 64, kind), ctypes.create_string_buffer(64)
    ends = ctypes.addressof(target), start
    assert driver.call("MemcpyAsync", *(ends if out else ends[::-1]), 64, 1) == 0
    ctypes.string_at(start, 64)


@both
@in_child
def test_events_and_contexts_are_checked_logged_and_counted(platform):
    from fake_driver.control import driver

    if not driver.hip:
        assert driver.call("EventRecord", 0, 0) == 3                     # not initialised
        driver.call("Init", 0)
        assert driver.current_device() == -1
        assert driver.call("StreamIsCapturing", 1, 0) == 201             # no context
    driver.make_current(0)
    event, stream, other = driver.value("EventCreate", 2), driver.stream(0), driver.stream(1)
    assert (driver.alive("events"), driver.alive("streams")) == (1, 2)
    driver.clear()
    for of in stream, 0, 1, 2:
        assert driver.call("EventRecord", event, of) == driver.call("StreamWaitEvent", of, event, 0) == 0
    assert driver.call("StreamWaitEvent", other, event, 0) == 0
    assert driver.call("EventRecord", event, other) == 400               # of another device
    assert driver.call("EventRecord", event, 0x1234) == 400
    assert driver.call("EventDestroy", event) == 0
    assert driver.log()[:2] == [
        f"EventRecord event={event:#x} stream={stream:#x} device=0",
        f"StreamWaitEvent stream={stream:#x} event={event:#x} device=0",
    ]
    assert driver.calls()[-3:] == ["EventRecord", "EventRecord", "EventDestroy"]

    driver.make_current(1)
    assert (driver.alive("contexts"), driver.alive("pushed"), driver.current_device()) == (2, 2, 1)
    assert driver.call("EventRecord", driver.value("EventCreate", 2), 1) == 0       # stream 1 is of either device
    driver.value("CtxPopCurrent")
    assert driver.current_device() == (1 if driver.hip else 0)           # HIP's pop leaves the device
    driver.value("CtxPopCurrent")
    assert driver.call("CtxPopCurrent", 0) == 201
    for device in 0, 1:
        assert driver.call("DevicePrimaryCtxRelease", device) == 0
        assert driver.call("DevicePrimaryCtxRelease", device) == 201
    assert [driver.alive(what) for what in ("contexts", "pushed", "events")] == [0, 0, 1]


@both
@in_child
def test_a_call_fails_when_it_is_told_to(platform):
    from fake_driver.control import driver

    driver.make_current(0)
    driver.fail("StreamSynchronize", 719, after=2)
    assert [driver.call("StreamSynchronize", 1) for _ in range(4)] == [0, 0, 719, 719]
    assert driver.call("EventDestroy", driver.value("EventCreate", 0)) == 0
    driver.fail("StreamSynchronize", 999)
    assert driver.call("StreamSynchronize", 1) == 999
    driver.fail("StreamSynchronize", 0)
    assert driver.call("StreamSynchronize", 1) == 0
    driver.fail("StreamSynchronize", 999, after=1, times=2)
    assert [driver.call("StreamSynchronize", 1) for _ in range(4)] == [0, 999, 999, 0]
    driver.fail("EventCreate", 2)
    driver.clear()
    assert driver.log() == []
    assert driver.call("EventCreate", 0, 0) == 2
    assert driver.log() == ["EventCreate event=0x0 flags=0 device=0 -> 2"]


@both
@pytest.mark.parametrize("use", [
    'driver.call("EventRecord", event, stream)', 'driver.call("StreamWaitEvent", stream, event, 0)',
    'driver.call("StreamSynchronize", stream)', 'driver.call("MemcpyAsync", 0, 0, 0, stream)',
    'driver.call("EventRecord", dead, 0)', 'driver.call("StreamWaitEvent", 0, dead, 0)',
    'driver.call("EventDestroy", dead)',
])
@in_child(returns=-6, complains="is dead")
def test_a_dead_handle_ends_the_process(use, platform):
    from fake_driver.control import driver

    driver.make_current(0)
    event, dead, stream = driver.value("EventCreate", 2), driver.value("EventCreate", 2), driver.stream()
    driver.kill_stream(stream)
    driver.call("EventDestroy", dead)
    eval(use)


@both
@in_child
def test_what_does_not_follow_is_a_race(platform):
    from fake_driver.control import driver

    driver.make_current(0)
    first, then, event = driver.stream(), driver.stream(), driver.value("EventCreate", 2)
    memory = driver.allocate(0, 16)

    def order():
        driver.call("EventRecord", event, first)
        driver.call("StreamWaitEvent", then, event, 0)

    def race(what, on, before, last):
        return [f"RACE {memory:#x}: {what} on stream {on:#x} does not follow {before} on stream {last:#x}"]

    driver.use(memory, first, "write")
    driver.use(memory, first, "read")
    driver.use(memory, then, "read")
    assert driver.races() == race("a read", then, "a write", first)
    driver.use(memory, first, "write")
    assert driver.races() == race("a write", first, "a read", then)
    order()
    driver.use(memory, then, "read")                # after the event
    driver.call("StreamSynchronize", then)
    driver.use(memory, first, "write")              # after the host
    driver.use(memory, 0, "write")                  # the legacy stream waits for the others, and they for it
    driver.use(memory, then, "write")
    assert driver.races() == []


@both
@in_child
def test_the_pool_hands_a_block_out_again_in_the_order_of_its_streams(platform):
    from fake_driver.control import driver

    driver.make_current(0)
    first, then, event = driver.stream(), driver.stream(), driver.value("EventCreate", 2)
    block = driver.value("MemAllocAsync", 16, first)
    driver.use(block, first, "write")
    driver.call("MemFreeAsync", block, first)
    assert driver.value("MemAllocAsync", 16, then) != block             # not known to be free there
    assert driver.value("MemAllocAsync", 16, first) == block
    driver.use(block, then, "read")                                     # somebody who still has the old block
    assert len(driver.races()) == 1
    driver.call("MemFreeAsync", block, first)
    assert "MemFreeAsync" in driver.races()[0]
    driver.use(block, first, "read")
    assert "the memory is free" in driver.races()[0]
    driver.call("EventRecord", event, first)
    driver.call("StreamWaitEvent", then, event, 0)
    assert driver.value("MemAllocAsync", 16, then) == block


@in_child(returns=97, complains="RACE")
def test_a_child_with_a_race_fails():
    from fake_driver.control import driver

    driver.make_current(0)
    memory = driver.allocate(0, 16)
    driver.use(memory, driver.stream(), "write")
    driver.use(memory, driver.stream(), "read")


@both
@in_child
def test_a_global_capture_forbids_waiting_to_every_thread(platform):
    from fake_driver.control import driver

    driver.make_current(0)
    first, then = driver.stream(), driver.stream()
    driver.capture(first)
    assert driver.call("StreamSynchronize", then) == 0
    driver.capture(first, mode="global")
    assert driver.call("StreamSynchronize", then) == 900


@both
@in_child
def test_captures(platform):
    import ctypes

    from fake_driver.control import driver

    driver.make_current(0)
    event, stream, other = driver.value("EventCreate", 2), driver.stream(0), driver.stream(0)

    def status(of):
        value = ctypes.c_int(7)
        return driver.call("StreamIsCapturing", of, ctypes.byref(value)) or value.value

    assert status(stream) == status(1) == 0
    for capturing in 1, 2:
        driver.capture(stream, capturing)
        assert status(stream) == capturing
    driver.capture(stream)
    assert status(other) == status(2) == 0
    assert status(1) == status(0) == driver.call("EventRecord", event, 1) == 906
    assert driver.call("StreamSynchronize", stream) == 900
    assert driver.call("EventRecord", event, other) == 0
    assert driver.call("StreamWaitEvent", stream, event, 0) == 905       # what is not captured
    assert driver.call("EventRecord", event, stream) == driver.call("StreamWaitEvent", stream, event, 0) == 0
    assert driver.call("StreamWaitEvent", other, event, 0) == 905        # out of the capture
    driver.capture(stream, 0)
    assert status(stream) == status(1) == 0
    driver.capture(1)
    assert status(1) == 1


@both
@in_child
def test_devices(platform):
    import ctypes

    from fake_driver.control import driver

    driver.call("Init", 0)
    assert driver.value("DeviceGetCount") == 2
    assert driver.value("DeviceGet", 1) == 1
    assert driver.call("DeviceGet", ctypes.byref(ctypes.c_int()), 2) == 101
    assert driver.call("DevicePrimaryCtxRetain", ctypes.byref(ctypes.c_size_t()), -1) == 101
    attribute = 9 if driver.hip else 89
    assert driver.value("DeviceGetAttribute", attribute, 1) == 1
    driver.concurrent_managed_access(False)
    assert driver.value("DeviceGetAttribute", attribute, 1) == 0


@both
@in_child
def test_threads_lose_no_line_and_have_their_own_contexts(platform):
    from concurrent.futures import ThreadPoolExecutor

    from fake_driver.control import driver

    driver.make_current(1)
    driver.clear()

    def work(index):
        driver.make_current(index % 2)
        for _ in range(500):
            event = driver.value("EventCreate", 2)
            assert driver.call("EventRecord", event, 1) == driver.call("EventDestroy", event) == 0
        return driver.current_device()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(8))) == {0, 1}
    calls = driver.calls()
    assert len(calls) == 8 * (3 + 1500) and calls.count("EventDestroy") == 4000
    assert driver.alive("events") == 0 and driver.current_device() == 1


@pytest.mark.needs("numba")
@in_child
def test_numba_makes_real_arrays_on_both_devices():
    import numpy as np
    from fake_driver.control import driver
    from numba import cuda

    assert cuda.is_available() and len(cuda.gpus) == 2
    empty, data = cuda.device_array((3, 4), np.float32), np.arange(12.0)
    assert type(empty).__name__ == "DeviceNDArray" and empty.shape == (3, 4)
    array = cuda.to_device(data)
    part = array[2:6]
    assert part.copy_to_host().tolist() == [2, 3, 4, 5]
    start = array.__cuda_array_interface__["data"][0]
    assert part.__cuda_array_interface__["data"][0] == start + 16
    assert (array.copy_to_host() == data).all() and driver.read(start, data.nbytes) == data.tobytes()

    stream = cuda.stream()
    queued = cuda.to_device(data, stream=stream)
    interface = queued.__cuda_array_interface__
    assert (interface["version"], interface["stream"], interface["typestr"]) == (3, int(stream), "<f8")
    driver.clear()
    again = cuda.as_cuda_array(queued)
    assert driver.log("StreamSynchronize") == [f"StreamSynchronize stream={int(stream):#x} device=0"]
    assert (again.copy_to_host(stream=stream) == data).all()

    with cuda.gpus[1]:
        other = cuda.to_device(data[:3])
    assert driver.log("MemAlloc")[-1].endswith(" device=1")
    assert driver.value("PointerGetAttribute", 9, other.__cuda_array_interface__["data"][0]) == 1

    event = cuda.event()
    event.record(stream)
    event.wait(stream)
    assert driver.calls()[-2:] == ["EventRecord", "StreamWaitEvent"]
    pinned, managed, mapped = cuda.pinned_array(4), cuda.managed_array(4), cuda.mapped_array(4)
    for of in pinned, managed, mapped:
        of[:] = 3
        assert of.sum() == 12
    assert driver.alive("allocations") == 7

    del empty, array, part, stream, queued, again, other, event, pinned, managed, mapped, of
    cuda.close()
    assert [driver.alive(what) for what in ("allocations", "streams", "events", "contexts", "pushed")] == [0] * 5


@pytest.mark.needs("numba")
@in_child(NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT='0')
def test_numba_frees_when_the_last_view_goes():
    from fake_driver.control import driver
    from numba import cuda

    array = cuda.device_array(10)
    view, driver_sees = cuda.as_cuda_array(array)[2:], driver.alive("allocations")
    driver.clear()
    del array
    assert driver.log("MemFree") == [] and driver_sees == driver.alive("allocations") == 1
    del view
    assert len(driver.log("MemFree")) == 1 and driver.alive("allocations") == 0


@pytest.mark.needs("cuda", "numba")
@in_child
def test_cuda_core_makes_dlpack_buffers_and_orders_streams():
    import numpy as np
    from cuda.core import Device
    from cuda.core.utils import StridedMemoryView
    from fake_driver.control import driver
    from numba import cuda

    device = Device(1)
    device.set_current()
    buffer = device.allocate(64, stream=device.create_stream())
    assert tuple(buffer.__dlpack_device__()) == (2, 1)
    assert "dltensor" in repr(buffer.__dlpack__(stream=-1))
    with cuda.gpus[0]:
        array = cuda.to_device(np.arange(6.0), stream=(stream := cuda.stream()))
        driver.clear()
        view = StridedMemoryView.from_cuda_array_interface(array, stream_ptr=1)
        assert (view.ptr, view.device_id) == (array.__cuda_array_interface__["data"][0], 0)
    assert driver.log("EventRecord")[0].endswith(f" stream={int(stream):#x} device=0")
    assert driver.log("StreamWaitEvent")[0].startswith("StreamWaitEvent stream=0x1 event=")
