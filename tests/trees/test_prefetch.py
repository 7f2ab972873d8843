"""Batches that a thread reads and converts ahead."""

import gc
import itertools
import operator
import os
import signal
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
    for batch in dlbridge.prefetch(source(), "numpy", depth=2, copy=False):
        del batch
        most = max(most, len(living))
    assert most <= 4, most      # … and the one that is handed over


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


# ---- what it gives is the caller's own -------------------------------------------------------------------------------

def frozen(array):
    view = array.view()
    view.flags.writeable = False
    return view


def packed(array):
    return array.view([("flag", "i1"), ("x", "<f4"), ("rest", "V3")])["x"]


VIEWS = {
    "ndarray": lambda buffer: buffer,
    "strides": lambda buffer: buffer[::2],
    "backwards": lambda buffer: buffer[::-1],
    "repeated": lambda buffer: np.broadcast_to(buffer[:1], (3, 8)),
    "without axes": lambda buffer: buffer[:1].reshape(()),
    "read-only": frozen,
    "big-endian": lambda buffer: buffer.view(">f4"),
    "a field of packed records": packed,
    "records": lambda buffer: buffer.view([("x", "f4"), ("y", "f4")]),
    "one record": lambda buffer: buffer.view([("x", "f4"), ("y", "f4")])[1],
    "subclass": lambda buffer: buffer.view(np.memmap),
    "memoryview": lambda buffer: memoryview(buffer).toreadonly(),
    "Tensor": dlbridge.asdlpack,
    "read-only Tensor": lambda buffer: dlbridge.asdlpack(frozen(buffer)),
    "capsule": lambda buffer: dlbridge.to_dlpack(buffer, max_version=(1, 0)),
    "legacy capsule": lambda buffer: dlbridge.to_dlpack(buffer),
    "a tree": lambda buffer: {"a": [buffer, (frozen(buffer), buffer[2:])]},
}
OF_TORCH = {
    "tensor": lambda tensor: tensor,
    "conjugated": lambda tensor: tensor.view(dtype=complex_type()).conj(),
    "negated": lambda tensor: tensor.view(dtype=complex_type()).conj().imag,
    "expanded": lambda tensor: tensor[:1].expand(5),
    "by NumPy": lambda tensor: np.from_dlpack(tensor),
}
TARGETS = ("numpy", "torch", "jax", "memoryview", "dlbridge", "dlpack")


def complex_type():
    import torch

    return torch.complex64


def numbers(tree):
    """The numbers of arrays of any library, without a look at who has them."""
    if isinstance(tree, dict):
        return {name: numbers(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [numbers(value) for value in tree]
    tree = tree.resolve_conj().resolve_neg() if hasattr(tree, "resolve_conj") else tree
    return np.array(dlbridge.convert(tree, "numpy", readonly="share")).tolist()


def refilled(view, buffer, count=6):
    """A camera: it fills the same buffer again and again."""
    for index in range(count):
        buffer[:] = index + 1
        yield view(buffer)


def check_own(view, to, buffer):
    expected = [numbers(dlbridge.convert_tree(batch, to, copy=True)) for batch in refilled(view, buffer)]
    assert len({str(each) for each in expected}) == 6
    # All of them are read before the first one is looked at.
    assert [numbers(batch) for batch in list(dlbridge.prefetch(refilled(view, buffer), to))] == expected


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_buffer_may_be_filled_again(view, to):
    from support.exporters import aligned

    check_own(view, to, aligned(8, "f4"))


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("view", OF_TORCH.values(), ids=OF_TORCH)
def test_a_tensor_may_be_filled_again(view, to):
    import torch

    check_own(view, to, torch.zeros(8))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_buffer_may_be_large_and_the_caller_slow(depth):
    buffer = np.zeros(1 << 20, "u1")
    for index, tensor in enumerate(dlbridge.prefetch(refilled(np.asarray, buffer, 12), "torch", depth=depth)):
        time.sleep(0.002 * (index % 3))
        assert bool((tensor == index + 1).all())


@pytest.mark.needs("torch")
def test_what_is_the_callers_may_be_written():
    buffer = frozen(np.zeros(3))
    for to in "numpy", "torch":
        first, second = list(dlbridge.prefetch([buffer, buffer], to))
        first[:] = 7
        assert second.tolist() == buffer.tolist() == [0, 0, 0]


def test_other_byte_orders_dates_and_orders_of_axes_stay_as_they_are():
    given = [np.arange(3, dtype=">i4"), np.arange(3).view("M8[s]"), np.asfortranarray(np.zeros((2, 3)))]
    for array, like in zip(dlbridge.prefetch(given, "numpy"), given, strict=True):
        assert (array.dtype.str, array.strides, array.tolist()) == (like.dtype.str, like.strides, like.tolist())


@pytest.mark.needs("torch")
def test_a_gradient_goes_through_a_batch():
    import torch

    weight = torch.ones(3, requires_grad=True)
    [given] = dlbridge.prefetch([weight], "torch")
    assert given.data_ptr() != weight.data_ptr()
    given.sum().backward()
    assert weight.grad.tolist() == [1, 1, 1]
    [given] = dlbridge.prefetch([weight], "torch", detach=True)
    assert not given.requires_grad
    assert given.data_ptr() != weight.data_ptr()
    sparse = torch.eye(3).to_sparse()
    [given] = dlbridge.prefetch([sparse], "torch")
    assert given is not sparse
    assert given.is_sparse


@pytest.mark.needs("jax")
def test_what_is_constant_is_shared():
    import jax

    content = np.frombuffer(b"0123", "u1")
    own = jax.numpy.arange(3)
    for to in "numpy", "memoryview", "dlbridge":
        [given] = dlbridge.prefetch([content], to)
        assert np.shares_memory(np.asarray(given), content)
    [given] = dlbridge.prefetch([own], "jax")
    assert given is own
    [given] = dlbridge.prefetch([own], "numpy")
    assert given.__array_interface__["data"][0] == own.unsafe_buffer_pointer()
    # With copy=True it is copied, too.
    [given] = dlbridge.prefetch([content], "numpy", copy=True)
    assert not np.shares_memory(given, content)


@pytest.mark.needs("torch", "jax")
def test_without_its_copy_convert_has_its_way():
    from support.exporters import aligned

    array = aligned(3, "f4")
    array[:] = 5
    start = array.__array_interface__["data"][0]
    for given in array, dlbridge.asdlpack(array):
        for to in "numpy", "torch":
            [shared] = dlbridge.prefetch([given], to, copy=False)
            assert np.asarray(shared).__array_interface__["data"][0] == start
    # What convert() refuses with copy=False is refused in its place.
    for given, to, keywords in (
            (array.astype(">f4"), "torch", {}), (array, "jax", {}), (frozen(array), "torch", {}),
            (array.astype("f8"), "jax", {"narrow": True})):
        with pytest.raises(dlbridge.CopyRequiredError):
            dlbridge.convert(given, to, copy=False, **keywords)
        with pytest.raises(dlbridge.CopyRequiredError):
            list(dlbridge.prefetch([given], to, copy=False, **keywords))
    # readonly= is about writing, and takes no copy away.
    [shared] = dlbridge.prefetch([array], "jax", copy=False, readonly="share")
    assert shared.unsafe_buffer_pointer() == start
    [own] = dlbridge.prefetch([array], "jax", readonly="share")
    assert own.unsafe_buffer_pointer() != start
    # The device that is asked for needs no permission.
    for to in "numpy", "torch", "dlbridge":
        [shared] = dlbridge.prefetch([array], to, device="cpu", copy=False)
        assert np.asarray(shared).__array_interface__["data"][0] == start


@pytest.mark.needs("jax")
@in_child(says="", warnings="ignore", XLA_FLAGS="--xla_force_host_platform_device_count=2")
def test_another_device_of_the_host_needs_no_permission():
    import jax
    import numpy

    import dlbridge

    array = numpy.ones(3, "float32")
    for keywords in {}, {"copy": False}:
        [given] = dlbridge.prefetch([array], "jax", device="cpu:1", **keywords)
        assert given.devices() == {jax.devices("cpu")[1]}
    [back] = dlbridge.prefetch([given], "jax", device="cpu:0", copy=False)
    assert back.devices() == {jax.devices("cpu")[0]}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("keywords", [{}, {"copy": True}])
@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["U8", "S8", "O", "T"])
def test_words_are_those_of_their_batch(dtype, to, keywords):
    """They are handed on, by a shallow copy."""
    dtype = np.dtypes.StringDType() if dtype == "T" else dtype
    words, anything = np.empty(2, dtype), object()

    def source():
        for index in range(5):
            words[:] = f"image {index}"
            yield {"image": np.full(2, index), "name": words, "names": (words[:1],), "else": anything}

    for index, batch in enumerate(list(dlbridge.prefetch(source(), to, **keywords))):
        assert int(batch["image"][0]) == index
        for word in (*batch["name"], batch["names"][0][0]):
            assert (word if isinstance(word, str) else word.decode()) == f"image {index}"
        assert batch["else"] is anything
    things = np.array([anything, None])
    [given] = dlbridge.prefetch([things], to)
    assert given is not things
    assert given[0] is anything
    assert list(dlbridge.prefetch([things], to, copy=False)) == [things]


@pytest.mark.needs("torch")
def test_columns_that_are_handed_on_are_those_of_their_batch():
    rows = np.zeros(2, [("name", "U8"), ("x", "f4")])

    def source():
        for index in range(5):
            rows["name"], rows["x"] = f"row {index}", index
            yield rows

    for index, batch in enumerate(list(dlbridge.prefetch(source(), "torch", columns="pass"))):
        assert batch["x"].tolist() == [index, index]
        assert batch["name"].tolist() == [f"row {index}"] * 2


def test_a_source_cannot_ask_for_its_own_batches():
    ready, given = threading.Event(), []

    def source():
        ready.wait(SECONDS)
        yield next(given[0])

    given.append(dlbridge.prefetch(source(), "numpy"))
    ready.set()
    with pytest.raises(RuntimeError, match="its source asks"):
        next(given[0])
    given.clear()


def test_a_batch_comes_as_soon_as_it_is_there():
    """An environment gives the next one only when something was done about this one."""
    done = threading.Semaphore(0)

    def environment():
        for index in range(5):
            yield {"x": np.full(3, index)}
            assert done.acquire(timeout=SECONDS)

    for index, batch in enumerate(dlbridge.prefetch(environment(), "numpy")):
        assert values([batch]) == [index]
        done.release()


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


class Camera:
    """An iterator that its loader keeps, as persistent workers are."""

    def __init__(self):
        self.index, self.closed = 0, False

    def __iter__(self):
        return self

    def __next__(self):
        assert not self.closed
        self.index += 1
        if self.index % 4 == 0:
            raise StopIteration
        return np.full(2, self.index)

    def close(self):
        self.closed = True


def test_nothing_of_the_callers_is_closed():
    camera, generator = Camera(), (np.full(2, index) for index in range(4))

    class Loader:
        def __iter__(self):
            return iter(camera)

    for source in camera, Loader():
        dlbridge.prefetch(source, "numpy").close()
        camera.index = 0
        assert [int(batch[0]) for _ in range(2) for batch in dlbridge.prefetch(source, "numpy")] == [1, 2, 3, 5, 6, 7]
    found = dlbridge.prefetch(generator, "numpy", depth=1)
    next(found)
    found.close()
    assert list(generator)          # the caller goes on with it


def test_several_threads_take_what_is_there():
    free, taken = threading.Event(), []

    def source():
        for index in range(4):
            yield np.full(2, index)
        free.wait(SECONDS)

    def take():
        for batch in found:
            taken.append(int(batch[0]))

    for depth in 1, 3:
        free.clear()
        taken.clear()
        found = dlbridge.prefetch(source(), "numpy", depth=depth)
        workers = [threading.Thread(target=take) for _ in range(4)]
        for worker in workers:
            worker.start()
        until(lambda: len(taken) == 4)      # though the source gives no more
        free.set()
        for worker in workers:
            worker.join(SECONDS)
        assert sorted(taken) == [0, 1, 2, 3]


def test_what_was_being_read_is_gone_after_the_end():
    begun, free = threading.Event(), threading.Event()

    def source(then):
        yield np.zeros(2)
        begun.set()
        free.wait(SECONDS)
        yield then()

    for then in lambda: np.ones(2), failing(0).__next__:
        begun.clear()
        free.clear()
        found = dlbridge.prefetch(source(then), "numpy", depth=1)
        next(found)
        assert begun.wait(SECONDS)
        closing = threading.Thread(target=found.close)
        closing.start()
        until(lambda found=found: found._reader.stopped)
        free.set()
        closing.join()
        assert list(found) == []
        assert not found._reader.batches
        assert found._reader.error is None


def test_after_the_end_there_is_no_error():
    found = dlbridge.prefetch(failing(2), "numpy", depth=5)
    next(found)
    until(lambda: found._reader.ended)
    found.close()
    assert list(found) == []
    with dlbridge.prefetch(failing(0), "numpy") as found:
        until(lambda: found._reader.ended)
    assert list(found) == []


def test_no_cycle_keeps_what_it_was_given():
    class Like(np.ndarray):
        pass

    class Source(list):
        pass

    like, source = np.zeros(3).view(Like), Source([np.zeros(2), np.array(["a"])])
    alive = [weakref.ref(like), weakref.ref(source)]
    gc.collect()
    gc.disable()
    try:
        list(dlbridge.prefetch(source, like))
        found = dlbridge.prefetch(source, like)
        next(found)
        found.close()
        del like, source, found
        assert [each() for each in alive] == [None, None]
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.parametrize("seed", [1, 2])
@in_child(says="", timeout=100)
def test_an_interrupt_at_any_moment_leaves_no_lock_taken(seed):
    """Signals every 20 to 300 us make in a second what Ctrl-C makes seldom. What a call has in hand may be lost."""
    import random
    import signal

    import numpy

    import dlbridge

    armed, interrupts = False, 0

    def interrupt(*_):
        if armed:
            raise KeyboardInterrupt

    def calls():
        """The calls of a caller, each of which may be interrupted."""
        found, expected = dlbridge.prefetch((numpy.full(3, index) for index in range(30)), "numpy"), 0
        while expected < 30:
            batch = yield lambda: next(found, None)
            if batch is None:
                break
            assert int(batch[0]) >= expected, "it came again, or late"
            expected = int(batch[0]) + 1
        if seed % 2:
            yield found.close
        else:
            yield lambda: found.__exit__(None, None, None)
        found.close()
        assert list(found) == []

    signal.signal(signal.SIGALRM, interrupt)
    choose = random.Random(seed)
    while interrupts < 3000:
        steps = calls()
        call = next(steps, None)
        while call is not None:
            result = None
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, choose.choice([2e-5, 5e-5, 1e-4, 3e-4]))
                result = call()
                armed = False
            except KeyboardInterrupt:
                armed = False
                interrupts += 1
                continue
            finally:
                armed = False
            try:
                call = steps.send(result)
            except StopIteration:
                call = None
        signal.setitimer(signal.ITIMER_REAL, 0)


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


class Falsy(Exception):
    """Counts as false, as an exception that is a collection of nothing does."""

    def __len__(self):
        return 0


def test_an_error_that_counts_as_false_is_no_end():
    def source():
        yield np.zeros(2)
        raise Falsy

    found = dlbridge.prefetch(source(), "numpy")
    next(found)
    with pytest.raises(Falsy):
        next(found)


class NoRoom(np.ndarray):
    """Words of which there is no room for a copy."""

    def __array_finalize__(self, base):
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError


def test_words_that_cannot_be_copied_are_not_handed_on():
    found = dlbridge.prefetch([np.array(["a", "b"]).view(NoRoom)], "dlbridge")
    with pytest.raises(MemoryError):
        next(found)


def test_pinned_memory_without_a_driver_is_copied():
    array = np.arange(4.0)
    pinned = dlbridge.from_pointer(array.ctypes.data, (4,), "float64", device=(3, 0), owner=array)
    made, = dlbridge.prefetch([pinned], "numpy")
    array[:] = -1
    assert made.tolist() == [0, 1, 2, 3]


def test_many_batches_leave_nothing_behind():
    before = len(gc.get_objects())
    found = dlbridge.prefetch(batches(10_000), "numpy", depth=4)
    assert sum(map(operator.itemgetter("index"), found)) == 10_000 * 9_999 // 2
    del found
    until(lambda: not threads())
    gc.collect()
    assert len(gc.get_objects()) < before + 1000
