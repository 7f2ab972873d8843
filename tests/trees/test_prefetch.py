"""Batches that a thread reads and converts ahead."""

import gc
import itertools
import operator
import os
import threading
import time
import weakref

import numpy as np
import pytest
from support.children import in_child

import dlbridge

SECONDS = 20        # until something counts as never


def batches(count, size=3):
    for index in range(count):
        yield {"x": np.full(size, index), "index": index, "name": "n"}


def values(found):
    return [int(np.asarray(batch["x"])[0]) for batch in found]


def threads():
    return [each for each in threading.enumerate() if each.name == "dlbridge.prefetch"]


def until(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    until(lambda: not threads())


# ---- what comes ------------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "dlbridge"])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_every_batch_comes_converted_and_in_order(to, depth):
    found = list(dlbridge.prefetch(batches(9), to, depth=depth, narrow=True))
    assert values(found) == list(range(9))
    for batch, expected in zip(found, batches(9), strict=True):
        like = dlbridge.convert_tree(expected, to, narrow=True)
        assert [*map(type, batch.values())] == [*map(type, like.values())]
        assert list(batch) == list(like)


@pytest.mark.needs("torch")
def test_any_iterable_is_a_source():
    import torch

    rows = np.arange(12.0).reshape(4, 3)
    for source in (list(rows), tuple(rows), iter(list(rows)), map(np.copy, rows), rows.copy()):
        assert [row.tolist() for row in dlbridge.prefetch(source, "torch", copy=True)] == rows.tolist()
    loader = torch.utils.data.DataLoader(list(rows), batch_size=2, collate_fn=dlbridge.collate)
    assert [batch.tolist() for batch in dlbridge.prefetch(loader, "numpy")] == [rows[:2].tolist(), rows[2:].tolist()]
    assert list(dlbridge.prefetch([], "torch")) == []


@pytest.mark.needs("torch")
def test_tables_are_dictionaries():
    import torch

    tables = [np.array([(index, 2.0), (1, 3.0)], [("a", "i8"), ("b", "f8")]) for index in range(3)]
    for index, batch in enumerate(dlbridge.prefetch(tables, "torch", copy=True)):
        assert batch["a"].tolist() == [index, 1]
        assert torch.is_tensor(batch["b"])


# ---- how far it reads ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_next_batches_are_read_while_the_caller_works(depth):
    started = []

    def source():
        for index in range(12):
            started.append(index)
            yield np.full(2, index)

    found = dlbridge.prefetch(source(), "numpy", depth=depth)
    for index, batch in enumerate(found):
        expected = min(12, index + 1 + depth)
        until(lambda expected=expected: len(started) >= expected)
        time.sleep(0.01)
        assert len(started) == expected
        assert batch[0] == index


def test_no_more_batches_live_than_the_depth_and_the_callers():
    living = set()

    class Array(np.ndarray):
        pass

    def source():
        for index in range(300):
            array = np.zeros(4).view(Array)
            living.add(index)
            weakref.finalize(array, living.discard, index)
            yield array
            del array

    most = 0
    for batch in dlbridge.prefetch(source(), "numpy", depth=2):
        del batch
        most = max(most, len(living))
    assert 2 <= most <= 4, most     # … and the one that is handed over


# ---- errors ----------------------------------------------------------------------------------------------------------

def failing(count):
    yield from batches(count)
    raise RuntimeError("the disk is gone")


def test_an_error_of_the_source_comes_in_its_place_with_its_traceback():
    found = dlbridge.prefetch(failing(3), "numpy", depth=5)
    assert values([next(found) for _ in range(3)]) == [0, 1, 2]
    with pytest.raises(RuntimeError, match="the disk is gone") as caught:
        next(found)
    assert "failing" in [entry.name for entry in caught.traceback]
    with pytest.raises(StopIteration):
        next(found)


@pytest.mark.needs("torch")
def test_an_error_of_a_conversion_comes_in_its_place_and_is_the_end():
    given = [{"x": np.zeros(2)}, {"x": {"y": np.zeros(2, "M8[s]")}}, {"x": np.zeros(2)}]
    found = dlbridge.prefetch(given, "torch")
    next(found)
    with pytest.raises(dlbridge.ConversionError, match=r"^prefetch: leaf \['x'\]\['y'\]"):
        next(found)
    assert list(found) == []


def test_stop_iteration_of_a_conversion_is_not_the_end():
    class Stopping:
        def __dlpack__(self, **keywords):
            raise StopIteration

        def __dlpack_device__(self):
            return 1, 0

    found = dlbridge.prefetch([np.zeros(2), Stopping(), np.zeros(2)], "numpy")
    next(found)
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(found)


def test_a_source_that_can_be_asked_once_is_asked_once():
    class Once:
        def __init__(self):
            self.capsule = dlbridge.to_dlpack(np.ones(2))

        def __dlpack__(self, **keywords):
            return self.__dict__.pop("capsule")

        def __dlpack_device__(self):
            return 1, 0

    assert [array.sum() for array in dlbridge.prefetch((Once() for _ in range(4)), "numpy")] == [2] * 4


WRONG = {
    "target": (([], "nothing"), {}, dlbridge.UnsupportedError, "nothing"),
    "keyword": (([], "numpy"), {"colour": 1}, TypeError, "colour"),
    "value": (([], "numpy"), {"readonly": "perhaps"}, ValueError, "readonly"),
    "out": (([], "numpy"), {"out": None}, TypeError, "out"),
    "others": (([], "numpy"), {"others": "keep"}, ValueError, "others"),
    "depth": (([], "numpy"), {"depth": 0}, ValueError, "depth 0"),
    "depth of another type": (([], "numpy"), {"depth": 1.5}, ValueError, "depth 1.5"),
    "source": ((3, "numpy"), {}, TypeError, "not iterable"),
    "device": (([], "numpy"), {"device": "moon"}, (ValueError, dlbridge.DeviceError), "moon"),
}


@pytest.mark.parametrize(("arguments", "keywords", "error", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_the_call_is_said_at_once(arguments, keywords, error, text):
    with pytest.raises(error, match=text):
        dlbridge.prefetch(*arguments, **keywords)


# ---- one buffer ------------------------------------------------------------------------------------------------------

def refilled(buffers, count=8):
    """A camera: it fills the same buffers again and again."""
    for index, buffer in zip(range(count), itertools.cycle(buffers), strict=False):
        buffer[:] = index
        yield {"x": buffer}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_buffer_that_is_filled_again_is_an_error_and_never_a_wrong_value(depth):
    found = dlbridge.prefetch(refilled([np.zeros(3, int)]), "numpy", depth=depth)
    with pytest.raises(dlbridge.ConversionError, match=r"\(pass copy=True\)"):
        next(found)


@pytest.mark.parametrize("slow", ["source", "caller"])
def test_it_is_an_error_whoever_is_slow(slow):
    """The caller may be done with a batch before the next one is read into its memory, or not."""
    def source():
        for batch in refilled([np.zeros(3, int) for _ in range(2)], 30):
            time.sleep(0.02 if slow == "source" else 0)
            yield batch

    def work():
        for _ in dlbridge.prefetch(source(), "numpy"):
            time.sleep(0.005)

    with pytest.raises(dlbridge.ConversionError, match="copy=True"):
        work()


def test_a_tensor_over_the_buffer_is_no_way_round_it():
    with pytest.raises(dlbridge.ConversionError, match="copy=True"):
        list(dlbridge.prefetch(({"x": dlbridge.asdlpack(batch["x"])} for batch in refilled([np.zeros(3)])), "numpy"))


def test_so_is_one_that_is_filled_in_turn():
    with pytest.raises(dlbridge.ConversionError, match="copy=True"):
        list(dlbridge.prefetch(refilled([np.zeros(3, int) for _ in range(2)]), "numpy"))
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(9), 4)
    with pytest.raises(dlbridge.ConversionError, match="copy=True"):
        list(dlbridge.prefetch(windows, "numpy"))


@pytest.mark.needs("jax")
def test_where_it_is_copied_a_buffer_may_be_filled_again():
    buffer = np.zeros(3, "int32")
    assert values(dlbridge.prefetch(refilled([buffer]), "numpy", copy=True)) == list(range(8))
    assert values(dlbridge.prefetch(refilled([buffer]), "jax")) == list(range(8))


def test_memory_that_is_not_in_use_any_more_may_come_again():
    buffers = [np.zeros(3, int) for _ in range(6)]
    assert values(dlbridge.prefetch(refilled(buffers, 30), "numpy", depth=2)) == list(range(30))


# ---- the end ---------------------------------------------------------------------------------------------------------

class Endless:
    """A source that says when it is closed."""

    def __init__(self):
        self.closed = threading.Event()

    def __iter__(self):
        try:
            for index in itertools.count():
                yield np.full(2, index)
        finally:
            self.closed.set()


def test_close_ends_the_thread_and_the_source():
    source = Endless()
    found = dlbridge.prefetch(source, "numpy")
    next(found)
    found.close()
    assert source.closed.is_set()
    assert not threads()
    assert list(found) == []
    found.close()


def test_a_closed_iterator_does_not_wait_for_a_source_that_is_stuck():
    free = threading.Event()

    def source():
        yield np.zeros(2)
        free.wait(SECONDS)

    found = dlbridge.prefetch(source(), "numpy", copy=True)
    next(found)
    closing = threading.Thread(target=found.close)
    closing.start()
    until(lambda: found._reader.stopped)
    assert list(found) == []
    free.set()
    closing.join()


def test_a_with_block_closes_also_over_an_error():
    source = Endless()

    def interrupted():
        with dlbridge.prefetch(source, "numpy") as found:
            for _ in found:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert source.closed.is_set()


def test_an_abandoned_iterator_ends_the_thread():
    source = Endless()
    for _ in dlbridge.prefetch(source, "numpy"):
        break
    gc.collect()
    assert source.closed.wait(SECONDS)


def test_the_callers_own_iterator_is_left_open():
    class Mine:
        closed = False

        def __iter__(self):
            return self

        def __next__(self):
            return np.zeros(2)

        def close(self):
            self.closed = True

    source = Mine()
    dlbridge.prefetch(source, "numpy").close()
    assert not source.closed


def test_an_error_leaves_nothing_behind():
    from dlbridge.trees.prefetching import readers

    for _ in range(3):
        with pytest.raises(RuntimeError):
            list(dlbridge.prefetch(failing(1), "numpy"))
    until(lambda: not threads())
    gc.collect()
    assert not list(readers)


@pytest.mark.parametrize("stuck", [False, True])
@in_child(says="", timeout=SECONDS)
def test_python_ends_whatever_the_thread_does(stuck):
    import time

    import numpy

    import dlbridge

    def source():
        while True:
            yield numpy.zeros(100_000)
            if stuck:
                time.sleep(60)

    found = dlbridge.prefetch(source(), "numpy", copy=True)
    next(found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@in_child(says="", timeout=SECONDS)
def test_a_forked_child_is_told_to_read_by_itself():
    import os

    import numpy
    import pytest

    import dlbridge

    found = dlbridge.prefetch([numpy.zeros(2)] * 4, "numpy", copy=True)
    next(found)
    child = os.fork()
    if not child:
        found.close()
        with pytest.raises(RuntimeError, match="forked"):
            next(found)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(found)) == 3


def test_many_batches_leave_nothing_behind():
    before = len(gc.get_objects())
    found = dlbridge.prefetch(batches(10_000), "numpy", depth=4)
    assert sum(map(operator.itemgetter("index"), found)) == 10_000 * 9_999 // 2
    del found
    until(lambda: not threads())
    gc.collect()
    assert len(gc.get_objects()) < before + 1000
