"""Streams at the hand-over: who waits for whom, which calls that takes, and which streams a consumer may name."""

import pytest
from fake_driver.harness import in_child

both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@both
@in_child
def test_the_consumers_stream_waits_for_the_producers(platform):
    from fake_driver.producers import Interface, driver, ordered

    import dlbridge

    driver.make_current(0)
    start, first, then = driver.allocate(0, 16), driver.stream(), driver.stream()
    legacy = 0 if driver.hip else 1
    for entries, stream, expected in [
        ({"stream": first}, then, [(first, then)]),
        ({"stream": first}, 1, [(first, legacy)]),
        ({"stream": first}, 2, [(first, 2)]),
        ({"stream": 1}, then, [(legacy, then)]),
        ({"stream": 1}, 2, [(legacy, 2)]),
        ({"stream": 2}, 1, [(2, legacy)]),
        ({"stream": first}, first, []),
        ({"stream": 1}, 1, []),
        ({"stream": 2}, 2, []),
        ({"stream": None}, then, []),               # version 3: nobody need wait
        ({}, then, []),
        ({"version": 4}, then, []),
        ({"version": 2}, then, [(legacy, then)]),   # before: not said
        ({"version": 2}, 1, []),
        ({"version": 1, "stream": None}, then, [(legacy, then)]),
        ({"version": 0, "stream": first}, then, [(first, then)]),
        ({"stream": first}, -1, []),
        ({"version": 2}, -1, []),
    ]:
        case = entries, stream
        source = Interface(start, **entries)
        assert ordered(lambda: dlbridge.asdlpack(source, stream=stream)) == expected, case
        if stream > 2 and driver.hip:
            # A Tensor is ready where it was produced, until a consumer names its stream.
            tensor = dlbridge.asdlpack(source)
            assert ordered(lambda: tensor.__dlpack__(stream=stream)) == expected, case


@both
@in_child
def test_a_stream_of_a_tree_may_become_another_one(platform):
    from fake_driver.producers import Interface, Stream, driver, ordered

    import dlbridge

    driver.make_current(0)
    start, first, *others = driver.allocate(0, 16), *(driver.stream() for _ in range(4))
    source, named = Interface(start, stream=first), Stream(first)
    call = dlbridge.accepts("dlbridge", stream=named)(lambda *tensors: tensors)
    for other in others:
        named.handle = other
        assert ordered(lambda: call(source)) == [(first, other)]


@both
@in_child
def test_no_other_call_is_made_than_those_that_order_and_locate(platform):
    from fake_driver.producers import Interface, driver

    import dlbridge

    LOCATE = ["PointerGetAttributes"]
    ORDER = ["CtxGetCurrent", "StreamIsCapturing", "StreamIsCapturing", "EventRecord", "StreamWaitEvent"]
    driver.make_current(0)
    start, first, then = driver.allocate(0, 16), driver.stream(), driver.stream()
    dlbridge.asdlpack(Interface(start, stream=first), stream=then)      # loads the driver, and makes the event

    def calls(stream):
        driver.clear()
        made = dlbridge.asdlpack(Interface(start, stream=first), stream=stream)
        return driver.calls()

    assert calls(then) == [*LOCATE, *ORDER]
    assert calls(first) == calls(-1) == LOCATE
    tensor = dlbridge.asdlpack(Interface(start, stream=first), stream=then)
    driver.clear()
    tensor.__dlpack__(stream=then), tensor.__dlpack__(stream=-1), tensor.__dlpack_device__(), repr(tensor)
    assert driver.log() == []


@pytest.mark.needs("numba")
@in_child
def test_how_many_calls_of_the_driver_each_hand_over_makes():
    """torch.from_dlpack(a CuPy array) makes 2 on one stream and 6 on two, by its source, and orders no release."""
    from fake_driver.producers import Interface, Producer, Stream, delete, driver
    from numba import cuda

    import dlbridge

    driver.make_current(0)
    start, same, other = driver.allocate(0, 16), Stream(driver.stream()), Stream(driver.stream())
    interface, producer = Interface(start, stream=same.handle), Producer(start)
    numbas = cuda.as_cuda_array(interface)
    kept = dlbridge.asdlpack(interface, stream=same)

    def delivered(source, stream):
        results = []
        for _ in range(2):          # the first one makes an event
            driver.clear()
            results.append(dlbridge.to_dlpack(source, stream=stream))
        return len(driver.log())

    def released(stream):
        capsule = dlbridge.asdlpack(interface, stream=same).__dlpack__(stream=stream)
        driver.clear()
        delete(capsule)
        return len(driver.log())

    counts = {source: (delivered(source, same), delivered(source, other)) for source in (
        interface, numbas, producer, kept)}
    assert counts == {
        interface: (1, 6),          # where the memory is; which context is current, two captures, record, wait
        numbas: (1, 6),
        producer: (0, 0),           # it orders by itself
        kept: (0, 5),
    }
    assert (released(same), released(other)) == (0, 5)


@pytest.mark.needs("numba")
@in_child
def test_a_stream_is_named_in_any_way():
    import ctypes
    from types import SimpleNamespace

    from fake_driver.producers import Interface, Stream, driver, ordered
    from numba import cuda

    import dlbridge

    driver.make_current(0)
    start, first, handle = driver.allocate(0, 16), driver.stream(), driver.stream()
    source = Interface(start, stream=first)
    own = cuda.stream()

    def torch_like(handle): return SimpleNamespace(cuda_stream=handle)
    def cupy_like(handle): return SimpleNamespace(ptr=handle)
    def older_numba(handle): return SimpleNamespace(handle=ctypes.c_void_p(handle))

    for stream, then in [
        (handle, handle), (1, 1), (2, 2),
        (own, int(own)), (cuda.external_stream(handle), handle), (cuda.default_stream(), 1),
        (cuda.legacy_default_stream(), 1), (cuda.per_thread_default_stream(), 2),
        *[(make(named), then)
          for make in (Stream, torch_like, cupy_like, older_numba)
          for named, then in [(handle, handle), (2, 2), (1, 1), (0, 1)]],     # an object's 0 is the legacy one
    ]:
        expected = [(first, then)]
        assert ordered(lambda: dlbridge.asdlpack(source, stream=stream)) == expected, stream
        assert ordered(lambda: dlbridge.to_dlpack(source, stream=stream)) == expected, stream
        assert ordered(lambda: dlbridge.convert(source, "numba", stream=stream)) == expected, stream
        tensor = dlbridge.asdlpack(source)
        assert ordered(lambda: tensor.__dlpack__(stream=stream)) == expected, stream
    assert ordered(lambda: dlbridge.asdlpack(source)) == []                   # nobody has asked
    for hand_over in (
        lambda: dlbridge.asdlpack(source).__dlpack__(), lambda: dlbridge.asdlpack(source).__dlpack__(stream=None),
        lambda: dlbridge.convert(source, "numba"), lambda: dlbridge.convert(source, "numba", stream=None),
    ):
        assert ordered(hand_over) == [(first, 1)]


@pytest.mark.needs("numba")
@pytest.mark.parametrize(("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "stream"), [("0", 1), ("1", 2)])
@in_child
def test_numbas_default_stream_is_the_one_that_it_is_told_to_use(NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM, stream):
    from fake_driver.producers import Interface, driver, ordered

    import dlbridge

    driver.make_current(0)
    first = driver.stream()
    source = Interface(driver.allocate(0, 16), stream=first)
    assert ordered(lambda: dlbridge.convert(source, "numba")) == [(first, stream)]


@pytest.mark.needs("numba")
@both
@in_child
def test_a_stream_that_is_none_is_refused(platform):
    import numpy
    from fake_driver.producers import Interface, Stream, counts, driver

    import dlbridge

    driver.make_current(0)
    source = Interface(driver.allocate(0, 16), stream=driver.stream())
    tensor = dlbridge.asdlpack(source)
    before = counts()
    driver.clear()
    HINT = "(pass 1 for the legacy default stream, 2 for the per-thread one, -1 for no ordering)"
    AMBIGUOUS = f"stream 0: is ambiguous, and forbidden by the array API standard {HINT}"

    def refused(function, error, text):
        try:
            function()
        except error as raised:
            assert text in str(raised), raised
        else:
            raise AssertionError(text)

    for stream, error, text in [
        (0, dlbridge.errors.DeviceError, AMBIGUOUS),
        (-2, dlbridge.errors.DeviceError, "stream -2"),
        (2**63, dlbridge.errors.DeviceError, "is no handle of 64 bits"),
        (Stream(2**64), dlbridge.errors.DeviceError, "is no handle of 64 bits"),
        (True, TypeError, "stream True"),
        (False, TypeError, "stream False"),
        ("1", TypeError, "stream '1'"),
        (1.0, TypeError, "stream 1.0"),
        (Stream("1"), TypeError, "has no handle, and is none"),
        (Stream(True), TypeError, "has no handle, and is none"),
        (object(), TypeError, "has no handle, and is none"),
    ]:
        calls = [
            lambda: dlbridge.convert(source, "numba", stream=stream),
            lambda: dlbridge.convert(numpy.zeros(1), "numpy", stream=stream),
            lambda: dlbridge.asdlpack(source, stream=stream),
            lambda: dlbridge.to_dlpack(source, stream=stream),
        ]
        if not driver.hip or stream not in (0, 1):     # numbers of ROCm's own
            calls.append(lambda: tensor.__dlpack__(stream=stream))
        for call in calls:
            refused(call, error, text)
    assert dlbridge.explain(source, "numba", stream=0).action == "refuse"
    assert driver.log() == [] and counts() == before


@in_child(platform='hip')
def test_rocms_default_stream_is_0_in_dlpack_and_1_elsewhere():
    from fake_driver.producers import ROCM, Interface, Producer, driver, ordered

    import dlbridge

    driver.make_current(0)
    start, first, handle = driver.allocate(0, 16), driver.stream(), driver.stream()
    tensor = dlbridge.asdlpack(Interface(start, stream=first))
    assert tensor.__dlpack_device__() == (ROCM, 0)
    assert ordered(lambda: tensor.__dlpack__(stream=0)) == ordered(lambda: tensor.__dlpack__()) == [(first, 0)]
    assert ordered(lambda: tensor.__dlpack__(stream=handle)) == [(first, handle)]
    assert ordered(lambda: tensor.__dlpack__(stream=-1)) == []
    for stream in 1, 2:
        try:
            tensor.__dlpack__(stream=stream)
        except dlbridge.errors.DeviceError as error:
            assert f"stream {stream}: is no stream of ROCm (pass 0 for the default stream" in str(error)
        else:
            raise AssertionError(stream)
    for stream, told in [(None, 0), (1, 0), (handle, handle), (-1, -1)]:
        source = Producer(start, (ROCM, 0))
        assert ordered(lambda: dlbridge.asdlpack(source, stream=stream)) == []
        assert source.told == [told]


@pytest.mark.needs("numba")
@in_child
def test_a_dlpack_producer_is_told_the_stream_and_nothing_more_is_ordered():
    from cuda.core import Device
    from fake_driver.producers import Producer, Stream, driver, ordered

    import dlbridge

    driver.make_current(0)
    start, handle, other = driver.allocate(0, 16), driver.stream(), driver.stream()
    for to, stream, told in [
        ("dlbridge", None, 1), ("dlbridge", handle, handle), ("dlbridge", Stream(handle), handle),
        ("dlbridge", Stream(0), 1), ("dlbridge", 2, 2), ("dlbridge", -1, -1), ("dlpack", handle, handle),
        ("numba", None, 1), ("numba", handle, handle), ("numba", -1, -1),
    ]:
        source = Producer(start)
        assert ordered(lambda: dlbridge.convert(source, to, stream=stream)) == []
        assert source.told == [told], (to, stream)
    source = Producer(start)
    tensor = dlbridge.asdlpack(source, stream=handle)
    assert ordered(lambda: tensor.__dlpack__(stream=handle)) == []
    assert ordered(lambda: tensor.__dlpack__(stream=other)) == [(handle, other)]
    assert ordered(lambda: tensor.__dlpack__()) == [(handle, 1)]
    assert source.told == [handle]
    dlbridge.explain(source, "numba")
    assert source.told == [handle, -1]
    # A capsule of unknown origin is ready on the legacy default stream, as the standard says.
    assert ordered(lambda: dlbridge.asdlpack(source.capsule(), stream=other)) == [(1, other)]
    assert ordered(lambda: dlbridge.asdlpack(source.capsule(), stream=1)) == []

    device = Device(0)
    device.set_current()
    buffer = device.allocate(64, stream=(stream := device.create_stream()))
    handle = int(stream.handle)
    driver.clear()
    tensor = dlbridge.asdlpack(buffer, stream=stream)
    assert (tensor.device, tensor.dtype, tensor.data_ptr) == ("cuda:0", "int8", int(buffer.handle))
    assert driver.log() == []
    assert ordered(lambda: tensor.__dlpack__(stream=handle)) == []
    assert ordered(lambda: tensor.__dlpack__(stream=other)) == [(handle, other)]


@pytest.mark.needs("numba")
@in_child
def test_consumers_order_themselves_after_a_tensor():
    from cuda.core import Device
    from cuda.core.utils import StridedMemoryView
    from fake_driver.producers import Interface, driver, ordered
    from numba import cuda

    import dlbridge

    device = Device(0)
    device.set_current()
    start, first = driver.allocate(0, 16), driver.stream()
    then = device.create_stream()
    handle = int(then.handle)
    tensor = dlbridge.asdlpack(Interface(start, stream=first))
    assert ordered(lambda: StridedMemoryView.from_dlpack(tensor, stream_ptr=handle)) == [(first, handle)]
    assert ordered(lambda: StridedMemoryView.from_dlpack(tensor, stream_ptr=-1)) == []
    assert ordered(lambda: StridedMemoryView.from_cuda_array_interface(tensor, stream_ptr=handle)) == [
        (first, handle)]
    view = StridedMemoryView.from_any_interface(tensor, stream_ptr=handle)
    assert (view.ptr, view.shape, view.device_id, view.readonly) == (start, (4,), 0, False)

    # Numba waits on the host, for the stream that the face names.
    driver.clear()
    array = cuda.as_cuda_array(tensor)
    assert driver.log("StreamSynchronize") == [f"StreamSynchronize stream={first:#x} device=0"]
    assert array.__cuda_array_interface__["data"] == (start, False)

    # A view as the source: __dlpack__ goes before its exchange API, which can be told no stream.
    view = StridedMemoryView.from_dlpack(dlbridge.asdlpack(Interface(start, stream=handle)), stream_ptr=handle)
    converted = dlbridge.convert(view, "numba", stream=then)
    assert converted.__cuda_array_interface__["data"] == (start, False)


@both
@in_child
def test_the_face_of_a_tensor_names_the_stream_on_which_it_is_ready(platform):
    import numpy
    from fake_driver.producers import BFLOAT, CUDA, ROCM, Interface, Producer, driver

    import dlbridge

    driver.make_current(0)
    kind = ROCM if driver.hip else CUDA
    start, first, then = driver.allocate(0, 96), driver.stream(), driver.stream()
    for entries, stream, expected in [
        ({"stream": first}, None, first), ({"stream": first}, then, then), ({"stream": first}, -1, None),
        ({"stream": first}, 1, 1), ({"stream": first}, 2, 2), ({"stream": None}, None, None), ({}, None, None),
        ({}, then, then), ({"version": 2}, None, 1), ({"version": 2}, then, then),
    ]:
        face = dlbridge.asdlpack(Interface(start, **entries), stream=stream).__cuda_array_interface__
        assert (face["stream"], face["version"]) == (expected, 3), (entries, stream)
    assert dlbridge.asdlpack(Producer(start, (kind, 0)).capsule()).__cuda_array_interface__["stream"] == 1
    assert dlbridge.asdlpack(Producer(start, (kind, 0)), stream=then).__cuda_array_interface__["stream"] == then

    source = Interface(start + 24, (2, 3), ">i2", True, strides=(8, -2), stream=1)
    source.entries["typestr"] = "<i2"
    face = dlbridge.asdlpack(source).__cuda_array_interface__
    assert face == {
        "shape": (2, 3), "typestr": "<i2", "descr": [("", "<i2")], "data": (start + 24, True), "strides": (8, -2),
        "stream": 1, "version": 3,
    }
    face = dlbridge.asdlpack(Interface(0, (0, 3), "|b1")).__cuda_array_interface__
    assert (face["shape"], face["typestr"], face["data"]) == ((0, 3), "|b1", (0, False))

    for plain in dlbridge.asdlpack(numpy.zeros(3)), dlbridge.asdlpack(Producer(start, (kind, 0), BFLOAT, 16)):
        assert not hasattr(plain, "__cuda_array_interface__")
    on_device = dlbridge.asdlpack(Interface(start))
    for face in "__array_interface__", "__array_struct__":
        assert not hasattr(on_device, face)
    for read in memoryview, bytes:
        try:
            read(on_device)
        except (BufferError, TypeError) as error:
            assert "PEP 3118" in str(error) or "bytes" in str(error)
        else:
            raise AssertionError(read)


@both
@in_child
def test_a_tensor_is_handed_to_many_streams_each_in_order(platform):
    from fake_driver.producers import Interface, Stream, delete, driver, order, ordered

    import dlbridge

    driver.make_current(0)
    first = Stream(driver.stream())
    tensor = dlbridge.asdlpack(Interface(driver.allocate(0, 16)), stream=first)
    consumers = [Stream(driver.stream()) for _ in range(3)]
    driver.clear()
    capsules = [tensor.__dlpack__(stream=consumer) for consumer in consumers]
    assert order() == [(first.handle, consumer.handle) for consumer in consumers]
    for index in 1, 2, 0:
        assert ordered(lambda: delete(capsules[index])) == [(consumers[index].handle, first.handle)]


@in_child
def test_a_tensor_is_ordered_once_for_a_stream():
    from fake_driver.producers import Interface, driver, ordered

    import dlbridge

    driver.make_current(0)
    first, then = driver.stream(), driver.stream()
    tensor = dlbridge.asdlpack(Interface(driver.allocate(0, 16)), stream=first)
    assert ordered(lambda: dlbridge.asdlpack(tensor, stream=then)) == [(first, then)]


@both
@in_child
def test_the_current_device_is_as_it_was(platform):
    from fake_driver.producers import Interface, driver, ordered

    import dlbridge

    legacy = 0 if driver.hip else 1
    start, first, then = ([make(device) for device in (0, 1)] for make in (
        lambda device: driver.allocate(device, 16), driver.stream, driver.stream))
    for current in None, 0, 1:
        if current is not None:
            driver.make_current(current)
        before = driver.current_device(), driver.alive("pushed")
        for device in 0, 1:
            source = Interface(start[device], stream=first[device])
            tensor = dlbridge.asdlpack(source)
            assert tensor.__dlpack_device__()[1] == device
            for call, expected in [
                (lambda: dlbridge.asdlpack(source, stream=then[device]), [(first[device], then[device])]),
                (lambda: tensor.__dlpack__(), [(first[device], legacy)]),
                (lambda: dlbridge.asdlpack(source, copy=True), []),
                (lambda: dlbridge.convert(source, "numpy", device="cpu"), []),
                (lambda: dlbridge.explain(source, "numpy", device="cpu"), []),
                (lambda: tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0)), []),
            ]:
                assert ordered(call) == expected
                assert (driver.current_device(), driver.alive("pushed")) == before, (current, device)
            assert all(line.endswith(f"device={device}") for line in driver.log("EventRecord"))
            tensor = None
            assert (driver.current_device(), driver.alive("pushed")) == before


@both
@in_child
def test_captures(platform):
    from fake_driver.producers import Interface, counts, driver, ordered

    import dlbridge

    driver.make_current(0)
    start, first, then, third = driver.allocate(0, 16), driver.stream(), driver.stream(), driver.stream()
    source = Interface(start, stream=first)
    assert ordered(lambda: dlbridge.asdlpack(source, stream=then)) == [(first, then)]
    before = counts()

    def refused(function):
        driver.clear()
        try:
            function()
        except dlbridge.errors.DeviceError as error:
            assert "captured" in str(error) and "stream=-1" in str(error), error
        else:
            raise AssertionError
        assert not driver.log("EventRecord", "StreamWaitEvent", "StreamSynchronize") and counts() == before

    for captured in first, then:
        for status in 1, 2:                 # being captured; the capture is invalidated
            driver.capture(captured, status)
            refused(lambda: dlbridge.asdlpack(source, stream=then))
            tensor = dlbridge.asdlpack(source)
            refused(lambda: tensor.__dlpack__(stream=then))
            for stream in first, -1:
                driver.clear()
                made = dlbridge.asdlpack(source, stream=stream), tensor.__dlpack__(stream=stream)
                del made
                assert not driver.log("StreamIsCapturing", "EventRecord", "StreamWaitEvent", "StreamSynchronize")
            driver.capture(captured, 0)
    # The legacy default stream would join the capture of any other.
    driver.capture(third)
    refused(lambda: tensor.__dlpack__())
    assert ordered(lambda: tensor.__dlpack__(stream=then)) == [(first, then)]
    driver.capture(third, 0)
    assert ordered(lambda: dlbridge.asdlpack(source, stream=then)) == [(first, then)]


@pytest.mark.parametrize("platform", ["cuda", "hip"])
@in_child
def test_another_threads_global_capture_is_not_ended(platform):
    import ctypes

    from fake_driver.producers import Interface, Stream, driver

    import dlbridge

    driver.make_current(0)
    start, first, captured = driver.allocate(0, 16), Stream(driver.stream()), driver.stream()
    source = dlbridge.asdlpack(Interface(start, stream=first.handle), stream=first)
    driver.capture(captured, mode="global")
    copy = dlbridge.convert(source, "dlbridge", copy=True, stream=first)
    assert dlbridge.convert(source, "numpy", device="cpu", stream=first).shape == (4,)
    del copy
    status = ctypes.c_int(7)
    assert (driver.call("StreamIsCapturing", captured, ctypes.byref(status)), status.value) == (0, 1)
    mode = ctypes.c_int(0)                  # the thread has its own mode again
    assert (driver.call("ThreadExchangeStreamCaptureMode", ctypes.byref(mode)), mode.value) == (0, 0)
