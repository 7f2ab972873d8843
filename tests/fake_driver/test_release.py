"""The way back: when the last consumer lets go, the producer's stream waits for its stream, or the memory is kept."""

import pytest
from fake_driver.harness import in_child, run

both = pytest.mark.parametrize("platform", ["cuda", "hip"])
AT_ONCE = {"NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT": "0"}        # Numba frees when the last array goes


@both
@in_child
def test_the_producers_stream_waits_if_both_handles_are_kept_alive(platform):
    from fake_driver.producers import Interface, Stream, counts, delete, driver, kept_for, order

    import dlbridge
    from dlbridge.testing import unordered_releases

    driver.make_current(0)
    start, first, then = driver.allocate(0, 16), driver.stream(), driver.stream()
    legacy = 0 if driver.hip else 1

    def back(tensor, stream):
        capsule = tensor.__dlpack__(stream=stream)
        driver.clear()
        before = unordered_releases()
        delete(capsule)
        return order() or kept_for(), unordered_releases() - before

    def on(stream):
        return dlbridge.asdlpack(Interface(start), stream=stream)       # ready there, which nobody has to wait for

    back(on(Stream(first)), Stream(then))                               # makes the event
    events = counts()
    for producer, consumer, expected in [
        (Stream(first), Stream(then), ([(then, first)], 0)),
        (Stream(first), None, ([(legacy, first)], 0)),
        (Stream(first), 2, ([(2, first)], 0)),
        (1, Stream(then), ([(then, legacy)], 0)),
        (2, Stream(then), ([(then, 2)], 0)),
        (1, 2, ([(2, legacy)], 0)),
        (first, Stream(then), ([then], 0)),         # a bare handle may be gone: the memory is kept meanwhile
        (first, None, ([legacy], 0)),
        (Stream(first), then, ([], 1)),             # … which the other stream's handle is needed for
        (first, then, ([], 1)),
        (1, then, ([], 1)),
        (Stream(first), Stream(first), ([], 0)),    # nothing to order
        (first, first, ([], 0)),
        (1, None, ([], 0)),
        (Stream(first), -1, ([], 0)),
        (-1, Stream(then), ([], 0)),
        (None, Stream(then), ([], 0)),              # the interface says that nobody need wait
    ]:
        if driver.hip and consumer == 2:
            continue                                # no stream of ROCm there
        assert back(on(producer), consumer) == expected, (producer, consumer)
        if expected[1]:
            assert driver.log() == []               # a handle that may be stale is not even looked at
    assert counts() == events


@both
@in_child
def test_a_consumer_on_another_device_is_waited_for(platform):
    from fake_driver.producers import Interface, Stream, counts, delete, driver, fields

    import dlbridge
    from dlbridge.testing import unordered_releases

    driver.make_current(0)
    driver.value("DevicePrimaryCtxRetain", 1)           # a stream there has it
    start, first, then = driver.allocate(0, 16), Stream(driver.stream(0)), Stream(driver.stream(1))
    for _ in range(2):
        driver.use(start, first.handle, "write")
        capsule = dlbridge.asdlpack(Interface(start), stream=first).__dlpack__(stream=then)
        driver.use(start, then.handle, "read")
        before = counts()
        driver.clear()
        delete(capsule)
        refused, record = driver.log("EventRecord")         # an event is of one device
        assert refused.endswith("-> 400") and fields(record)["stream"] == then.handle
        [wait] = driver.log("StreamWaitEvent")
        assert (fields(wait)["stream"], fields(wait)["event"]) == (first.handle, fields(record)["event"])
        assert counts()[:2] == before[:2] and counts()[3] == before[3] and driver.current_device() == 0
    driver.use(start, first.handle, "write")
    assert driver.races() == [] and unordered_releases() == 0
    then, call = Stream(driver.stream(1)), "StreamGetDevice" if driver.hip else "StreamGetCtx"
    capsule = dlbridge.asdlpack(Interface(start), stream=first).__dlpack__(stream=then)
    driver.fail(call, 719)
    delete(capsule)
    assert unordered_releases() == 1


@pytest.mark.needs("numba")
@in_child
def test_an_external_stream_is_known_by_what_it_is_and_not_by_its_name():
    from fake_driver.producers import Interface, Stream, driver
    from numba import cuda

    import dlbridge
    from dlbridge.testing import unordered_releases

    driver.make_current(0)
    start, own, handle = driver.allocate(0, 16), cuda.stream(), driver.stream()

    class Mine(type(own)):
        pass

    class ExternalSensor(Stream):       # its object is the stream
        pass

    for stream, counted in [
        (own, 0), (cuda.external_stream(handle), 1), (Mine(own.handle), 0), (Mine(own.handle, external=True), 1),
        (ExternalSensor(handle), 0),
    ]:
        before = unordered_releases()
        del [dlbridge.asdlpack(Interface(start, stream=1), stream=stream)][0]
        assert unordered_releases() - before == counted, stream


@pytest.mark.needs("numba")
@in_child(**AT_ONCE)
def test_the_order_is_record_wait_free():
    import numpy as np
    from fake_driver.producers import driver, fields, order
    from numba import cuda

    import dlbridge
    from dlbridge.testing import unordered_releases

    own, other = cuda.stream(), cuda.stream()
    for stream, handle in [(other, int(other)), (cuda.legacy_default_stream(), 1), (2, 2)]:
        array = cuda.to_device(np.arange(4.0), stream=own)
        start = array.__cuda_array_interface__["data"][0]
        made = dlbridge.asdlpack(array, stream=stream)
        del array
        driver.clear()
        del made
        assert order() == [(handle, int(own))]
        assert driver.calls()[-3:] == ["EventRecord", "StreamWaitEvent", "MemFree"], driver.calls()
        assert fields(driver.log("MemFree")[0])["pointer"] == start
    assert unordered_releases() == 0

    array = cuda.to_device(np.arange(4.0), stream=own)
    start, made = array.__cuda_array_interface__["data"][0], dlbridge.asdlpack(array, stream=int(other))
    del array
    driver.clear()
    del made
    assert driver.calls() == ["MemFree"] and unordered_releases() == 1


@in_child
def test_copies_are_freed_in_the_order_of_their_stream():
    from fake_driver.producers import Interface, Stream, counts, delete, driver, order

    import dlbridge

    driver.make_current(0)
    first, then = Stream(driver.stream()), Stream(driver.stream())
    source = Interface(driver.allocate(0, 16), stream=1)
    dlbridge.asdlpack(source)                           # the driver's contexts stay
    before = counts()
    tensor = dlbridge.asdlpack(source, stream=first, copy=True)
    assert tensor.data_ptr != source.entries["data"][0]
    capsule = tensor.__dlpack__(stream=then)
    driver.clear()
    del tensor
    assert driver.log() == []
    delete(capsule)
    assert order() == [(then.handle, first.handle)]
    assert driver.calls()[-2:] == ["MemFreeAsync", "ThreadExchangeStreamCaptureMode"]
    assert driver.log("MemFreeAsync")[0].endswith(f"stream={first.handle:#x}")
    assert counts()[1:] == before[1:]


@both
@in_child
def test_a_release_that_cannot_be_ordered_is_counted_and_nothing_else(platform):
    import sys
    import threading
    import weakref

    from fake_driver.producers import Interface, Stream, counts, delete, driver

    import dlbridge
    from dlbridge.testing import unordered_releases

    driver.make_current(0)
    start, gone = driver.allocate(0, 16), []
    sys.unraisablehook = gone.append                # an error in a destructor would come here

    def release(prepare, consumer=None, producer=None):
        first, then = producer or Stream(driver.stream()), consumer or Stream(driver.stream())
        source = Interface(start)
        owner = weakref.ref(source)
        capsule = dlbridge.asdlpack(source, stream=first).__dlpack__(stream=then)
        del source
        assert owner()
        before = unordered_releases(), counts()
        driver.clear()
        try:
            raise KeyError("pending")
        except KeyError:
            prepare(first, then, capsule)
            if owner():
                delete(capsule)
        waits = driver.log("StreamWaitEvent")
        assert owner() is None and counts()[3] == before[1][3]
        return unordered_releases() - before[0], waits

    def in_thread(first, then, capsule):
        def work():
            driver.make_current(0)
            delete(capsule)
            driver.value("CtxPopCurrent")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert release(lambda first, then, capsule: None)[0] == 0
    assert release(in_thread)[0] == 0
    # The per-thread default stream of the thread that lets go is another one.
    assert release(in_thread, producer=2) == (0, [])
    assert release(lambda *_: None, producer=2)[0] == 0
    if not driver.hip:
        assert release(in_thread, consumer=2) == (0, [])
        assert release(lambda *_: None, consumer=2)[0] == 0
    assert release(lambda first, then, capsule: driver.capture(then.handle, 2)) == (1, [])
    # Where the producer's stream cannot wait, the memory is kept until the consumer's is done.
    assert release(lambda first, then, capsule: driver.capture(first.handle)) == (0, [])
    for call in "CtxGetCurrent", "StreamIsCapturing", "EventRecord", "StreamWaitEvent":
        counted, waits = release(lambda *_: driver.fail(call, 719))
        assert counted == (call != "StreamWaitEvent") and all(" -> 719" in wait for wait in waits)
        driver.fail(call, 0)
    assert release(lambda *_: None)[0] == 0
    assert release(lambda *_: driver.deinitialize()) == (1, [])
    assert gone == []


@pytest.mark.needs("numba")
@in_child(**AT_ONCE)
def test_streams_are_kept_alive_as_long_as_the_result_needs_them_and_no_longer():
    import numpy as np
    from fake_driver.producers import Interface, Producer, Stream, alive, delete, driver, hold
    from numba import cuda

    import dlbridge

    driver.make_current(0)
    start = driver.allocate(0, 16)

    # The consumer's: as long as the result, or an export of it, lives.
    for made in (
        lambda stream: dlbridge.asdlpack(Interface(start, stream=1), stream=stream),
        lambda stream: dlbridge.convert(Interface(start, stream=1), "numba", stream=stream),
        lambda stream: dlbridge.convert(Producer(start), "numba", stream=stream),
        lambda stream: dlbridge.asdlpack(Producer(start), stream=stream),
    ):
        stream = Stream(driver.stream())
        result, streams = made(stream), hold(stream)
        del stream
        assert alive(streams) == [True]
        if isinstance(result, dlbridge.Tensor):
            capsule = result.__dlpack__()
            del result
            assert alive(streams) == [True]
            delete(capsule)
            del capsule
        else:
            del result
        assert alive(streams) == [False]

    # A capsule's own, which its export alone keeps.
    tensor, stream = dlbridge.asdlpack(Interface(start, stream=1)), Stream(driver.stream())
    capsule, streams = tensor.__dlpack__(stream=stream), hold(stream)
    del stream
    assert alive(streams) == [True]
    delete(capsule)
    assert alive(streams) == [False]

    # Numba's, which the producer's array has: its handle is destroyed with it.
    stream = cuda.stream()
    array = cuda.to_device(np.arange(4.0), stream=stream)
    tensor, references = dlbridge.asdlpack(array), hold(stream, array)
    del stream, array
    assert alive(references) == [True, True] and driver.log("StreamDestroy") == []
    del tensor
    assert alive(references) == [False, False]


@in_child
def test_no_stream_is_kept_where_nothing_is_ordered_or_a_call_fails():
    import sys

    from fake_driver.producers import Interface, Stream, alive, driver, hold

    import dlbridge

    driver.make_current(0)
    start = driver.allocate(0, 16)
    stream = Stream(-1)
    tensor, references = dlbridge.asdlpack(Interface(start, stream=1), stream=stream), hold(stream)
    del stream
    assert alive(references) == [False]
    stream, source = Stream(driver.stream()), Interface(start, stream=1)
    references = hold(stream, source)
    for call in "EventRecord", "StreamWaitEvent", "StreamIsCapturing", "PointerGetAttributes", "CtxGetCurrent":
        driver.fail(call, 719)
        for function in (
            lambda: dlbridge.asdlpack(source, stream=stream), lambda: dlbridge.to_dlpack(source, stream=stream),
        ):
            before = sys.getrefcount(stream), sys.getrefcount(source)
            try:
                function()
            except dlbridge.errors.DeviceError:
                pass
            else:
                raise AssertionError(call)
            assert (sys.getrefcount(stream), sys.getrefcount(source)) == before
        driver.fail(call, 0)
    stream = source = function = None
    assert alive(references) == [False, False]


@in_child
def test_the_stream_of_a_copy_is_kept_until_it_is_freed_there():
    import weakref

    from fake_driver.producers import Interface, Stream, driver

    import dlbridge

    driver.make_current(0)
    stream = Stream(driver.stream())
    handle, reference = stream.handle, weakref.ref(stream)
    copy = dlbridge.asdlpack(Interface(driver.allocate(0, 16), stream=1), stream=stream, copy=True)
    del stream
    assert reference() is not None
    del copy
    assert driver.log("MemFreeAsync")[0].endswith(f"stream={handle:#x}") and reference() is None


@both
@in_child
def test_deleters_run_once_on_every_way(platform):
    from fake_driver.producers import CUDA, ROCM, Producer, Stream, delete, driver, held

    import dlbridge

    driver.make_current(0)
    device = ROCM if driver.hip else CUDA, 0
    start, then = driver.allocate(0, 16), Stream(driver.stream())
    ways = [
        lambda source: dlbridge.asdlpack(source),
        lambda source: dlbridge.asdlpack(source, stream=then),
        lambda source: dlbridge.asdlpack(source, stream=-1),
        lambda source: dlbridge.asdlpack(source, copy=True),
        lambda source: dlbridge.asdlpack(source).__dlpack__(stream=then),
        lambda source: dlbridge.to_dlpack(source, stream=then),
        lambda source: dlbridge.convert(source, "numpy", device="cpu"),
        lambda source: dlbridge.asdlpack(source, device="cpu"),
        lambda source: dlbridge.explain(source, "numpy", device="cpu"),
        lambda source: dlbridge.convert(source, "numpy"),                   # refused
        lambda source: dlbridge.convert(source, "numpy", device="cpu", copy=False),
        lambda source: dlbridge.asdlpack(source).__cuda_array_interface__,
        lambda source: dlbridge.asdlpack(source.capsule(), stream=then),
    ]
    for index, way in enumerate(ways):
        source = Producer(start, device)
        try:
            made = way(source)
        except dlbridge.errors.DLBridgeError:
            assert index in (9, 10)
        made = None
        assert (source.deleted, held) == (1, []), index
    # Once, when the last of many is gone.
    source = Producer(start, device)
    tensor = dlbridge.asdlpack(source)
    capsules = [tensor.__dlpack__(stream=then) for _ in range(3)]
    del tensor
    delete(capsules.pop())
    capsules.pop()                      # one that nobody has consumed
    assert source.deleted == 0
    capsules.pop()
    assert source.deleted == 1


IN_ORDER = "gone after 10 calls\n"      # of both: whether either stream captures, record, wait; each in its context
NO_CALL = "gone after 0 calls\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("made = make()", NO_CALL),                                                      # in a module's globals
        ("sys.kept = make()", None),                                                    # in what goes last
        ("cycle = [make()]; cycle.append(cycle)", NO_CALL),
        ("atexit.register(lambda made: None, make())", None),                           # by the exit functions
        ("made = make(); atexit.register(lambda: globals().pop('made'))", IN_ORDER),
        ("atexit.register(make)", IN_ORDER),                                             # handed over while Python ends
        ("made = make(); atexit.register(driver.deinitialize)", NO_CALL),
        ("made = make(copy=True)", None),                                                # a device copy is left there
    ],
)
def test_results_that_are_alive_at_the_end_do_no_harm(code, said):
    ended = run(f"import atexit, sys\nfrom fake_driver.scenes.alive_at_the_end import driver, make\n{code}\n")
    assert ended.stderr == ""
    assert said is None or ended.stdout == said


@pytest.mark.needs("an end beside daemon threads")
@both
@pytest.mark.parametrize("attempt", [1, 2])
@in_child(says="")
def test_a_daemon_thread_that_lets_go_at_the_end_does_no_harm(platform, attempt):
    import threading

    from fake_driver.producers import Interface, driver
    from fake_driver.scenes.alive_at_the_end import make

    def work():
        driver.make_current(0)
        while True:
            make(kind=Interface)
            started.set()

    started = threading.Event()
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    assert started.wait(60)
    made = [make(kind=Interface) for _ in range(100)]       # they are alive at the end


@both
@in_child
def test_memory_that_came_by_dlpack_goes_back_in_the_order_of_its_own_stream_or_once_its_consumer_is_done(platform):
    import sys
    import types

    from fake_driver.producers import driver, kept_for
    from fake_driver.scenes.pooled import Pooled, own, producer, ways

    import dlbridge
    from dlbridge.libraries import library
    from dlbridge.libraries.library import Arrays, Fact, Library
    from dlbridge.testing import unordered_releases

    for way in ways:
        driver.clear()
        way()
        assert driver.races() == [] and unordered_releases() == 0
        assert len(kept_for()) == 1

    sys.modules["pooled"] = types.ModuleType("pooled")
    sys.modules["dlbridge.libraries.pooled"] = types.SimpleNamespace(LIBRARY=Library(
        name="pooled", arrays=(Arrays("Pooled", stream_object=Fact(lambda array, index: own, "of this test")),)))
    found = library.files()
    library.files = lambda: found | {"pooled"}
    library.library_of.cache_clear()
    Pooled.__module__ = "pooled"
    dlbridge.register_source(type("Another", (), {}), lambda array: array)      # clears what was cached of types
    for way in ways:
        driver.clear()
        way()
        assert driver.races() == [] and unordered_releases() == 0
        assert kept_for() == []
    dlbridge.asdlpack(producer(), stream=-1)        # no order was wanted
    assert (unordered_releases(), kept_for()) == (0, [])


@both
@in_child
def test_a_library_that_is_told_to_order_nothing_is_ordered_by_its_current_stream(platform):
    """Where its capsule would be wrong, or there is none, its interface is read."""
    from fake_driver.producers import CUDA, ROCM, Stream, driver, order
    from fake_driver.scenes.unordered import Array, asked, own

    import dlbridge
    from dlbridge.testing import unordered_releases

    class Derived(Array):       # its own methods are asked as those of any class
        def __dlpack__(self, stream=None):
            raise AssertionError("the interface is preferred")

    driver.make_current(0)
    device = ROCM if driver.hip else CUDA, 0
    then, start = Stream(driver.stream()), driver.allocate(0, 32) + 8
    for kind, told, field in [
        (Array, 3, {}), (Array, 0, {"strides": (-4,)}), (Array, 3, {"has_dtype": False}), (Derived, 0, {}),
    ]:
        by_capsule = kind is Array and not field
        protocol = "dlpack (legacy)" if by_capsule else "cuda_array_interface"
        array = kind(start, device)
        vars(array).update(field)
        driver.clear()
        tensor = dlbridge.asdlpack(array, stream=then)
        assert (tensor.protocol, tensor.data_ptr, order()) == (protocol, start, [(own.handle, then.handle)])
        assert tensor.strides == ((1,) if array.strides == (4,) else (-1,))
        driver.clear()
        del tensor
        assert (order(), unordered_releases()) == ([(then.handle, own.handle)], 0)
        driver.clear()
        del [dlbridge.asdlpack(array, stream=-1)][0]
        assert dlbridge.explain(array, "dlbridge").protocol == protocol
        assert (order(), unordered_releases(), array.told) == ([], 0, [-1] * told)
        assert array.deleted == (3 if by_capsule else 0)
    assert set(asked) == {0}


@in_child
def test_a_library_that_is_told_to_order_nothing_is_asked_for_what_its_capsule_cannot_say():
    from fake_driver.producers import driver
    from fake_driver.scenes.unordered import Array

    import dlbridge

    driver.make_current(0)
    array = Array(driver.allocate(0, 32) + 8)
    array.strides = 6,              # 1.5 elements, which the capsule would say as 1
    assert dlbridge.explain(array, "dlbridge").protocol == "cuda_array_interface" and array.told == []
    array.strides = 4,
    array.has_dtype = array.has_interface = False
    try:
        dlbridge.asdlpack(array)
    except BufferError as error:
        assert str(error) == "the dtype is not supported"
    else:
        raise AssertionError("there is no protocol")


@both
@pytest.mark.parametrize("signature", ["in the documentation", "nowhere", "refused"])
@in_child
def test_a_producer_whose_signature_cannot_be_inspected_is_told_the_stream(platform, signature):
    """As CuPy's method, which is Cython's: its documentation begins with its signature."""
    from fake_driver.producers import driver
    from fake_driver.scenes import pooled

    from dlbridge.testing import unordered_releases

    tried = []

    class Compiled(pooled.Pooled):
        def __dlpack__(self, **keywords):
            tried.append(sorted(keywords))
            if signature == "refused" and keywords:
                raise TypeError(f"__dlpack__() got an unexpected keyword argument {next(iter(keywords))!r}")
            keywords.pop("max_version", None)
            return super().__dlpack__(**(keywords or {"stream": 0 if driver.hip else 1}))

        __dlpack__.__signature__ = 0                # inspect.signature() raises TypeError
        if signature == "in the documentation":
            __dlpack__.__doc__ = "Compiled.__dlpack__(self, *, stream=None, tuple max_version=None)"

    pooled.Pooled = Compiled
    for way in pooled.ways:
        way()
        assert driver.races() == [] and unordered_releases() == 0
    both, none = ["max_version", "stream"], []
    assert tried == ([both] * 5 if signature != "refused" else [both, ["stream"], none, none, none, none, none])


@in_child
def test_an_error_of_a_producers_own_reaches_the_user():
    from fake_driver.producers import Producer, driver
    from fake_driver.scenes.pooled import then

    import dlbridge

    class Faulty(Producer):
        def __dlpack__(self, **keywords):
            tried.append(sorted(keywords))
            raise TypeError("the stream is closed" if len(tried) > 1 else "closed")

    class Working(Producer):
        def __dlpack__(self, **keywords):
            tried.append(sorted(keywords))
            if len(tried) > 1:
                raise TypeError("the stream is closed")
            return self.capsule()

    tried = []
    for kind, count in (Faulty, 1), (Working, 2):
        tried.clear()
        source = kind(driver.allocate(0, 16))
        for _ in range(count):
            try:
                dlbridge.asdlpack(source, stream=then)
            except TypeError as error:
                print(error)
        assert tried == [["max_version", "stream"]] * count       # it is known to take what it took once
