"""Memory whose producer's own stream is not known is kept until its consumer's stream is done with it."""

import pytest
from fake_driver.harness import in_child

both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@both
@in_child
def test_it_goes_back_with_the_first_hand_over_or_release_after_its_consumer(platform):
    from fake_driver.producers import Interface, Producer, counts, delete, driver, held
    from fake_driver.scenes.lent import first, kind, legacy, lent, start, then

    import dlbridge
    from dlbridge.testing import unordered_releases, waiting_releases

    interface = Interface(start, stream=first.handle)
    tensor = dlbridge.asdlpack(interface, stream=first)
    lent()
    before = counts()
    for look in (
        waiting_releases,
        lambda: dlbridge.asdlpack(interface, stream=first),
        lambda: tensor.__dlpack__(stream=first.handle),
        lambda: lent(-1),
    ):
        driver.hold(then.handle)
        sources = [lent() for _ in range(3)]
        look()
        assert waiting_releases() == 3 and [source.deleted for source in sources] == [0, 0, 0]
        driver.hold(then.handle, False)
        assert [source.deleted for source in sources] == [0, 0, 0]
        look()
        assert [source.deleted for source in sources] == [1, 1, 1] and waiting_releases() == 0
    # In the order of their streams, not of their releases.
    driver.hold(then.handle)
    late, soon = lent(), lent(first)
    assert (late.deleted, soon.deleted) == (0, 1)
    driver.hold(then.handle, False)
    assert waiting_releases() == 0 and late.deleted == 1
    # By a capsule, of which nobody says whose it is.
    driver.hold(legacy)
    source = Producer(start, (kind, 0))
    delete(dlbridge.asdlpack(source.capsule()).__dlpack__())
    assert waiting_releases() == 1 and source.deleted == 0
    driver.hold(legacy, False)
    assert waiting_releases() == 0 and source.deleted == 1
    assert counts()[1:] == before[1:] and held == [] and unordered_releases() == 0


@in_child
def test_a_producer_that_gives_its_memory_out_again_at_once():
    """As JAX does, from other threads: what a consumer reads later is what was there when it queued the read."""
    import random
    import threading

    from fake_driver.producers import Stream, driver, held
    from fake_driver.scenes.given_again import Array, free

    import dlbridge
    from dlbridge.testing import unordered_releases, waiting_releases

    errors = []

    def work(seed):
        driver.make_current(0)
        stream, choice = Stream(driver.value("StreamCreate", 1)), random.Random(seed)
        queued = []
        try:
            for _ in range(150):
                driver.hold(stream.handle)
                value = choice.randrange(256)
                try:
                    received = dlbridge.asdlpack(Array(value), stream=stream)
                except IndexError:
                    pass                            # all are in use: the stream has to run first
                else:
                    driver.use(received.data_ptr, stream.handle, "read")
                    queued.append((received.data_ptr, value))
                    del received
                if choice.random() < 0.5:
                    for address, value in queued:
                        assert driver.read(address, 16) == bytes([value]) * 16
                    queued.clear()
                    driver.hold(stream.handle, False)
        except BaseException as error:
            errors.append(error)
            raise
        for address, value in queued:
            assert driver.read(address, 16) == bytes([value]) * 16
        driver.hold(stream.handle, False)
        driver.value("CtxPopCurrent")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == [] and driver.races() == []
    assert waiting_releases() == unordered_releases() == 0 and len(free) == 12 and held == []


@both
@in_child
def test_the_oldest_is_waited_for_once_too_many_wait_or_too_much_memory(platform):
    from fake_driver.producers import Producer, Stream, driver, held
    from fake_driver.scenes.lent import kind, lent, start, then

    import dlbridge
    from dlbridge.testing import waiting_releases

    driver.hold(then.handle)
    sources = [lent() for _ in range(1024)]
    assert waiting_releases() == 1024 and driver.log("EventSynchronize") == []
    driver.clear()
    sources.append(lent())
    # The stream has run for the first one, and so the others are done too.
    assert len(driver.log("EventSynchronize")) == 1 and waiting_releases() == 0
    assert all(source.deleted == 1 for source in sources) and held == []
    driver.hold(then.handle, False)

    # Large memory is claimed here, as the driver is not asked about DLPack's.
    streams = [Stream(driver.stream()) for _ in range(3)]
    for stream in streams:
        driver.hold(stream.handle)
    sources = []
    for stream, expected in zip(streams, ([0], [0, 0], [1, 0, 0]), strict=True):
        source = Producer(start, (kind, 0))
        source.shape[0] = 500 << 20                 # floats, 2000 MiB of 4096
        sources.append(source)
        dlbridge.asdlpack(source, stream=stream)
        assert [source.deleted for source in sources] == expected
    assert waiting_releases() == 2
    source.shape[0] = 2 << 30                       # one alone may be larger
    for stream in streams:
        driver.hold(stream.handle, False)
    assert waiting_releases() == 0
    driver.clear()
    driver.hold(then.handle)
    dlbridge.asdlpack(source, stream=then)
    assert waiting_releases() == 1 and driver.log("EventSynchronize") == []
    driver.hold(then.handle, False)
    assert waiting_releases() == 0


@both
@in_child
def test_a_consumer_on_another_device_is_waited_for(platform):
    from fake_driver.producers import Stream, counts, driver
    from fake_driver.scenes.lent import lent

    from dlbridge.testing import unordered_releases, waiting_releases

    driver.value("DevicePrimaryCtxRetain", 1)           # a stream there has it
    other = Stream(driver.stream(1))
    lent(other)
    before = counts()
    driver.hold(other.handle)
    source = lent(other)
    assert waiting_releases() == 1 and source.deleted == 0
    driver.hold(other.handle, False)
    assert waiting_releases() == 0 and source.deleted == 1 and unordered_releases() == 0
    assert counts() == before and driver.current_device() == 0


@both
@in_child
def test_memory_that_waits_is_waited_for_where_a_copy_finds_none(platform):
    from fake_driver.producers import Interface, driver
    from fake_driver.scenes.lent import first, lent, start, then

    import dlbridge
    from dlbridge.testing import waiting_releases

    interface = Interface(start, stream=first.handle)
    dlbridge.asdlpack(interface, copy=True)
    driver.hold(then.handle)
    source = lent()
    driver.fail("MemAllocAsync", 2, times=1)
    dlbridge.asdlpack(interface, copy=True)
    assert source.deleted == 1 and waiting_releases() == 0 and len(driver.log("EventSynchronize")) == 1
    driver.hold(then.handle, False)
    driver.fail("MemAllocAsync", 2, times=1)            # nothing waits now
    try:
        dlbridge.asdlpack(interface, copy=True)
    except dlbridge.DeviceMemoryError as error:
        assert "16 bytes were wanted" in str(error)
    else:
        raise AssertionError


@both
@in_child
def test_what_an_array_keeps_beside_its_export_waits_too(platform):
    """As the values of ONNX Runtime, which keep the memory that their capsules forget."""
    import gc
    import sys
    import types
    import weakref

    from fake_driver.producers import Producer, driver, held
    from fake_driver.scenes.lent import kind, start, then

    import dlbridge
    from dlbridge.libraries import library
    from dlbridge.libraries.library import Arrays, Fact, Library
    from dlbridge.testing import waiting_releases

    sys.modules["forgetful"] = types.ModuleType("forgetful")
    sys.modules["dlbridge.libraries.forgetful"] = types.SimpleNamespace(LIBRARY=Library(
        name="forgetful", arrays=(Arrays("Value", forgets=Fact(True, "of this test")),)))
    found = library.files()
    library.files = lambda: found | {"forgetful"}
    library.library_of.cache_clear()
    Value = type("Value", (Producer,), {"__module__": "forgetful"})
    value = Value(start, (kind, 0))
    kept = weakref.ref(value)
    tensor = dlbridge.asdlpack(value, stream=then)
    del value
    driver.hold(then.handle)
    del tensor
    assert waiting_releases() == 1 and kept() is not None and kept().deleted == 0
    driver.hold(then.handle, False)
    assert waiting_releases() == 0
    gc.collect()
    assert kept() is None and held == []


@both
@in_child
def test_what_the_driver_refuses_is_counted_or_goes_back(platform):
    from fake_driver.producers import Producer, counts, driver
    from fake_driver.scenes.lent import kind, lent, start, then

    import dlbridge
    from dlbridge.testing import unordered_releases, waiting_releases

    lent()
    before = counts()
    for call in "EventCreate", "EventRecord", "StreamIsCapturing", "CtxGetCurrent":
        counted = unordered_releases()
        source = Producer(start, (kind, 0))
        tensor = dlbridge.asdlpack(source, stream=then)
        driver.fail(call, 719)
        del tensor
        assert (source.deleted, unordered_releases()) == (1, counted + 1), call
        driver.fail(call, 0)
    driver.hold(then.handle)
    source = lent()
    driver.fail("EventQuery", 719)                  # a GPU that has failed reads no more
    assert waiting_releases() == 0 and source.deleted == 1
    driver.fail("EventQuery", 0)
    assert counts()[1:] == before[1:]


@both
@in_child
def test_captures_are_left_alone(platform):
    import ctypes

    from fake_driver.producers import Producer, driver
    from fake_driver.scenes.lent import kind, lent, start, then

    import dlbridge
    from dlbridge.testing import unordered_releases, waiting_releases

    other, status = driver.stream(), ctypes.c_int()
    driver.hold(then.handle)
    source = lent()
    driver.capture(other, mode="global")            # as torch captures: what may break it, breaks it
    assert waiting_releases() == 1 and source.deleted == 0
    second = lent()
    driver.hold(then.handle, False)
    assert waiting_releases() == 0 and (source.deleted, second.deleted) == (1, 1)
    assert (driver.call("StreamIsCapturing", other, ctypes.byref(status)), status.value) == (0, 1)
    driver.capture(then.handle)
    third = Producer(start, (kind, 0))
    tensor = dlbridge.asdlpack(third, stream=then)
    driver.clear()
    del tensor                                      # an event of that stream would be a part of the graph
    assert driver.log("EventRecord") == [] and (third.deleted, unordered_releases()) == (1, 1)


@in_child(says="0\n")
def test_nothing_is_waited_for_at_the_end_and_a_forked_child_forgets_it():
    import atexit
    import os

    from fake_driver.producers import driver
    from fake_driver.scenes.lent import lent, then

    from dlbridge.testing import waiting_releases

    driver.hold(then.handle)
    source = lent()
    driver.clear()
    child = os.fork()
    if child == 0:
        assert waiting_releases() == 0 and source.deleted == 0 and driver.log() == []
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert waiting_releases() == 1
    driver.clear()
    atexit.register(lambda: print(len(driver.log())))


@both
@in_child(timeout=60)
def test_the_gil_is_given_up_while_the_driver_is_asked(platform):
    from fake_driver.producers import Producer, driver
    from fake_driver.scenes.lent import kind, lent, start, then

    import dlbridge
    from dlbridge.testing import waiting_releases

    tensor = dlbridge.asdlpack(Producer(start, (kind, 0)), stream=then)
    driver.hold(then.handle)
    driver.want_gil()
    del tensor                                      # a record
    driver.want_gil()
    assert waiting_releases() == 1                  # a query
    for _ in range(1023):
        lent()
    driver.want_gil()
    lent()                                          # a wait
    assert waiting_releases() == 0
