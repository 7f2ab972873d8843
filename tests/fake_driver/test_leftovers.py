"""Nothing is left over after thousands of hand-offs, from many threads at once."""

import pytest
from fake_driver.harness import in_child

both = pytest.mark.parametrize("platform", ["cuda", "hip"])


@both
@in_child
def test_ten_thousand_hand_offs_leave_nothing(platform):
    import gc

    from fake_driver.producers import counts, driver, held
    from fake_driver.scenes.hand_offs import Work

    from dlbridge.testing import unordered_releases, waiting_releases

    work = Work()
    work(32)
    gc.collect()
    gc.collect()                # CPython 3.14 leaves some to the second
    before, references, objects = counts(), work.references(), len(gc.get_objects())
    driver.clear()
    for _ in range(20):
        work(100)               # five hand-offs each
        waits = driver.log("StreamWaitEvent")
        driver.clear()
        assert len(waits) >= 500
    gc.collect()
    assert (counts(), work.references(), held) == (before, references, [])
    assert unordered_releases() == waiting_releases() == 0
    assert before[0] == 2                           # an event for each device
    assert abs(len(gc.get_objects()) - objects) < 50


@both
@in_child
def test_the_copy_of_a_fetch_that_fails_is_freed(platform):
    """No reference would show it."""
    from fake_driver.producers import Interface, driver
    from support.malloc import bytes_in_use

    import dlbridge

    source = Interface(driver.allocate(0, 1 << 16), shape=(1 << 14,))

    def fetch():
        try:
            dlbridge.convert(source, "numpy", device="cpu")
        except dlbridge.DeviceError:
            return True

    for call in "MemcpyDtoHAsync", "StreamSynchronize":
        fetch()
        driver.fail(call, 719)
        assert fetch()
        before = bytes_in_use()
        assert all(fetch() for _ in range(20))
        assert bytes_in_use() - before < 1 << 16, call
        driver.fail(call, 0)


@both
@in_child
def test_eight_threads_at_once_leave_nothing(platform):
    import sys
    import threading

    from fake_driver.producers import counts, driver, held
    from fake_driver.scenes.hand_offs import Work

    from dlbridge.testing import unordered_releases, waiting_releases

    works = [Work() for _ in range(8)]
    works[0](32)
    before, errors = counts(), []

    def thread(work, index):
        try:
            driver.make_current(index % 2)
            barrier.wait()
            work(150)
            assert driver.current_device() == index % 2
            driver.value("CtxPopCurrent")
        except BaseException as error:
            errors.append(error)
            raise

    references = [work.references() for work in works]
    barrier = threading.Barrier(8)
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=thread, args=(work, index)) for index, work in enumerate(works)]
    driver.clear()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == [] and [work.references() for work in works] == references and held == []
    assert counts()[1] == before[1] and counts()[3] == before[3]
    # Every event that came too late to be kept is destroyed.
    assert counts()[0] == 2
    assert not [line for line in driver.log() if "->" in line]
    assert unordered_releases() == waiting_releases() == 0


@both
@in_child
def test_one_tensor_is_handed_out_by_many_threads_at_once(platform):
    import sys
    import threading

    from fake_driver.producers import Interface, Stream, counts, delete, driver
    from fake_driver.scenes.hand_offs import starts

    import dlbridge
    from dlbridge.testing import unordered_releases

    first = Stream(driver.stream(0))
    source = Interface(starts[0], stream=1)
    tensor = dlbridge.asdlpack(source, stream=first)
    streams = [Stream(driver.stream(0)) for _ in range(8)]
    before, references = counts(), [sys.getrefcount(each) for each in (tensor, source, first, *streams)]
    barrier = threading.Barrier(8)

    def thread(stream):
        driver.make_current(1)
        barrier.wait()
        for _ in range(200):
            delete(tensor.__dlpack__(stream=stream))
            tensor.__cuda_array_interface__, tensor.__dlpack__()
        driver.value("CtxPopCurrent")

    driver.clear()
    threads = [threading.Thread(target=thread, args=(stream,)) for stream in streams]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    legacy = 0 if driver.hip else 1
    lines = driver.log("StreamWaitEvent")
    for stream in streams:
        assert sum(f"stream={stream.handle:#x} " in line for line in lines) == 200
    assert sum(f"stream={first.handle:#x} " in line for line in lines) == 8 * 400
    after = counts()
    assert (after[0], after[1], after[3], unordered_releases()) == (1, before[1], before[3], 0)
    del threads, each, stream
    assert [sys.getrefcount(each) for each in (tensor, source, first, *streams)] == references


@pytest.mark.needs("numba")
@in_child(NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT='0')
def test_numbas_arrays_leave_nothing():
    import gc

    from fake_driver.producers import counts
    from numba import cuda

    import dlbridge
    from dlbridge.testing import unordered_releases

    stream = cuda.stream()

    def hand_over():
        for device in 0, 1:
            with cuda.gpus[device]:
                array = cuda.device_array(16, "f4", stream=stream if device == 0 else 0)
                tensor = dlbridge.asdlpack(array, stream=cuda.legacy_default_stream())
                back = dlbridge.convert(tensor, "numba")
                again = dlbridge.convert(dlbridge.asdlpack(back), "numba", copy=True)
                dlbridge.convert(again, "numpy", device="cpu")

    hand_over()
    before = counts()
    for _ in range(500):
        hand_over()
    gc.collect()
    assert counts() == before and unordered_releases() == 0
