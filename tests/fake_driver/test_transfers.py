"""Large transfers between the host and a device go through pinned memory, by several threads."""

import pytest
from fake_driver.harness import run

both = pytest.mark.parametrize("platform", ["cuda", "hip"])
PIECE = 4096
STAGED = f"""
    import threading
    import dlbridge
    import numpy as np
    from dlbridge._core.devices.staging import _set_staging
    from fake_driver.producers import Interface, Stream, driver
    PIECE, THREADS = {PIECE}, 3
    _set_staging(4 * PIECE, PIECE, THREADS)
    random = np.random.default_rng(0)

    def refused(call, *parts):
        try:
            call()
        except dlbridge.DeviceError as error:
            assert all(part in str(error) for part in parts), error
        else:
            raise AssertionError("it was done")
"""
DOWN = STAGED + """
    driver.make_current(0)
    producers = Stream(driver.stream())

    def filled(nbytes):
        '''Memory of a device, as an array, and what is in it.'''
        start, content = driver.allocate(0, nbytes), random.bytes(nbytes)
        driver.write(start, content)
        return Interface(start, (nbytes,), "|u1", stream=producers.handle), content

    def down(source, **keywords):
        return dlbridge.convert(source, "numpy", device="cpu", **keywords).tobytes()

    def copies():
        return len(driver.log("MemcpyDtoHAsync"))
"""
UP = STAGED + """
    from numba import cuda
    with cuda.gpus[0]:
        pass

    def up(source):
        return dlbridge.convert(source, "numba", device="cuda:0")

    def copies():
        return len(driver.log("MemcpyHtoDAsync"))
"""


@both
def test_downloads_of_every_size_have_every_byte(platform):
    run(
        DOWN + """
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
        """,
        platform,
    )


@pytest.mark.needs("numba")
def test_uploads_of_every_size_have_every_byte():
    run(
        UP + """
    for pieces in 1, 2, 4, 5, 6, 7, 13:
        for nbytes in pieces * PIECE - 1, pieces * PIECE, pieces * PIECE + 1:
            source = random.integers(0, 256, nbytes, "u1")
            driver.clear()
            assert np.array_equal(up(source).copy_to_host(), source)
            assert copies() > 1 or nbytes < 4 * PIECE, nbytes
    assert driver.alive("events") == 0
        """
    )


@pytest.mark.needs("numba")
def test_every_layout_is_gathered_into_the_buffers():
    run(
        UP + """
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
        """
    )


@both
def test_a_download_is_ordered_after_its_producer_and_nothing_else(platform):
    run(
        DOWN + """
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
        """,
        platform,
    )


@both
@pytest.mark.parametrize("call", ["MemcpyDtoHAsync", "StreamSynchronize", "StreamWaitEvent", "EventRecord"])
def test_a_call_that_fails_in_a_thread_is_one_error(platform, call):
    run(
        DOWN + f"""
    source, content = filled(9 * PIECE)
    assert down(source) == content
    for after in range(3):
        if ("{call}", after) in (("EventRecord", 1), ("EventRecord", 2)):
            continue                    # it is called once
        driver.fail("{call}", 700, after=after)
        refused(lambda: down(source), "{call}", "the first error of the GPU before")
        driver.fail("{call}", 0)
        assert driver.alive("events") == 0 and driver.alive("pushed") == 1
        assert down(source) == content
    assert driver.alive("allocations") == 1 + 2 * THREADS
        """,
        platform,
    )


@both
@pytest.mark.parametrize("call", ["MemHostAlloc", "StreamCreate"])
def test_without_pinned_memory_the_driver_copies_it_all(platform, call):
    run(
        DOWN + f"""
    source, content = filled(9 * PIECE)
    driver.fail("{call}", 2)
    assert down(source) == content and copies() == 1
    driver.fail("{call}", 2, after=2)           # for one thread alone
    driver.clear()
    assert down(source) == content and copies() > 1
    driver.fail("{call}", 0)
    driver.clear()
    assert down(source) == content and copies() > 4
    assert driver.alive("allocations") == 1 + 2 * THREADS and driver.alive("streams") == 1 + 2 * THREADS
        """,
        platform,
    )


@both
def test_captures_are_respected(platform):
    run(
        DOWN + """
    source, content = filled(8 * PIECE)
    driver.capture(producers.handle)
    refused(lambda: down(source), "is captured into a graph", "stream=-1")
    driver.capture(producers.handle, 0)
    # Another thread's, in the mode in which a wait would end it.
    other = driver.stream()
    driver.capture(other, mode="global")
    assert down(source) == content
    driver.capture(other, 0)
        """,
        platform,
    )


@both
def test_pinned_memory_is_copied_as_it_is(platform):
    run(
        DOWN + """
    import ctypes
    source, content = filled(8 * PIECE)
    memory = (ctypes.c_uint8 * (8 * PIECE)).from_address(driver.allocate(0, 8 * PIECE, "host"))
    into = np.frombuffer(memory, "u1")
    assert dlbridge.convert(source, "numpy", device="cpu", out=into) is into
    assert into.tobytes() == content and copies() == 1
        """,
        platform,
    )


@both
def test_many_threads_at_a_time_share_the_buffers(platform):
    run(
        DOWN + """
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
        """,
        platform,
    )


def test_a_forked_child_forgets_the_buffers():
    run(
        DOWN + """
    import os
    from dlbridge._core.devices import staging
    source, content = filled(8 * PIECE)
    assert down(source) == content and staging.workers() == THREADS
    child = os.fork()
    if not child:
        os._exit(staging.workers())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert down(source) == content and staging.workers() == THREADS
        """
    )
