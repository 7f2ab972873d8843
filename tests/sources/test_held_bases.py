"""Arrays over memory that can be taken back: shared memory, files, and buffers that grow."""

import gc
import mmap
from multiprocessing import shared_memory

import numpy as np
import pytest
from support.optional import params

import dlbridge

pytestmark = pytest.mark.quick

TARGETS = params(["torch", "dlbridge", "memoryview", "dlpack"])


@pytest.fixture
def block():
    memory = shared_memory.SharedMemory(create=True, size=1 << 12)
    memory.unlink()
    memory.buf[:4] = b"\x00\x00\x80\x3f"
    yield memory
    gc.collect()
    memory.close()          # whatever a test held is gone


VIEWS = {
    "itself": lambda array: array,
    "view of a view": lambda array: array[:][::2][:],
    "subclass": lambda array: array.view(type("Special", (np.ndarray,), {})),
    "writable=False": lambda array: np.lib.stride_tricks.as_strided(array, writeable=False),
}


@pytest.mark.parametrize("view", params(VIEWS))
@pytest.mark.parametrize("to", TARGETS)
def test_shared_memory_stays_mapped(block, to, view):
    result = dlbridge.convert(view(np.ndarray((64,), "float32", buffer=block.buf)), to, readonly="share")
    gc.collect()
    with pytest.raises(BufferError):
        block.close()
    assert dlbridge.convert(result, "numpy")[0] == 1


def test_a_batch_holds_it_too(block):
    tree = dlbridge.convert_tree({"x": [np.ndarray((64,), "float32", buffer=block.buf)]}, "dlbridge")
    with pytest.raises(BufferError):
        block.close()
    del tree


def test_a_copy_does_not_hold_it(block):
    result = dlbridge.convert(np.ndarray((64,), "float32", buffer=block.buf), "dlbridge", copy=True)
    block.close()
    assert np.asarray(result)[0] == 1


@pytest.mark.needs("torch")
def test_explaining_does_not_hold_it(block):
    plan = dlbridge.explain(np.ndarray((64,), "float32", buffer=block.buf), "torch")
    block.close()
    assert plan.action == "share"


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_file_stays_mapped(tmp_path, mode):
    np.save(tmp_path / "x.npy", np.arange(100.0))
    array = np.load(tmp_path / "x.npy", mmap_mode=mode)
    mapped = array._mmap
    tensor = dlbridge.asdlpack(array[3:10])
    assert type(tensor.owner) is np.memmap
    del array
    with pytest.raises(BufferError):
        mapped.close()
    assert np.asarray(tensor).tolist() == list(range(3, 10))
    del tensor
    gc.collect()
    mapped.close()


def test_an_array_over_memory_that_was_let_go():
    mapped = mmap.mmap(-1, 4096)
    array = np.ndarray((8,), buffer=mapped)
    mapped.close()
    with pytest.raises(dlbridge.ConversionError, match=r"numpy: base mmap\.mmap: has released its memory"):
        dlbridge.asdlpack(array)


def test_a_bytearray_does_not_grow():
    grows = bytearray(80)
    tensor = dlbridge.asdlpack(np.ndarray((10,), buffer=grows))
    with pytest.raises(BufferError):
        grows.append(1)
    del tensor
    grows.append(1)


class Interface:
    """``__array_interface__`` whose data are a buffer."""

    def __init__(self, data, **entries):
        self.__array_interface__ = {"shape": (4,), "typestr": "<f4", "version": 3, "data": data, **entries}


@pytest.mark.parametrize("to", [*TARGETS, "numpy"])
def test_the_buffer_behind_an_interface_does_not_grow(to):
    grows = bytearray(16)
    result = dlbridge.convert(Interface(grows), to)
    gc.collect()
    with pytest.raises(BufferError):
        grows.append(1)
    del result
    gc.collect()
    grows.append(1)


@pytest.mark.parametrize("wrong", [
    {"offset": 17}, {"offset": 4}, {"offset": -1}, {"offset": 2**70}, {"offset": "4"}, {"shape": (5,)},
    {"strides": (2**62,)}, {"strides": (4, 4)}, {"typestr": "<f3"}], ids=str)
def test_the_buffer_behind_an_interface_that_is_refused_is_let_go(wrong):
    grows = bytearray(16)
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert(Interface(grows, **wrong), "numpy")
    caught.value.__traceback__ = None
    grows.append(1)


def test_two_results_hold_it_until_both_are_gone(block):
    array = np.ndarray((64,), "float32", buffer=block.buf)
    first, second = dlbridge.asdlpack(array), dlbridge.asdlpack(array[1:])
    del array, first
    with pytest.raises(BufferError):
        block.close()
    del second
    block.close()


def test_without_a_conversion_nothing_is_held(block):
    array = np.ndarray((64,), "float32", buffer=block.buf)
    assert dlbridge.convert(array, "numpy") is array
    block.close()


class Closing(np.ndarray):
    """Closes the memory that it lies over as it goes, as the shared memory of grain's loaders does."""

    def __del__(self):
        if getattr(self, "block", None) is not None:
            closed.append(None)
            try:
                self.block.close()
            except BufferError as error:
                closed[-1] = error


closed = []


@pytest.mark.parametrize("to", [*TARGETS, *params(["numpy"])])
def test_an_array_that_closes_its_memory_as_it_goes_can(to):
    closed.clear()
    memory = shared_memory.SharedMemory(create=True, size=1 << 12)
    memory.unlink()
    array = np.ndarray.__new__(Closing, (64,), "f4", buffer=memory.buf)
    array.block = memory
    del memory
    result = dlbridge.convert(array, to)
    del array
    gc.collect()
    assert closed == []
    del result
    gc.collect()
    assert closed == [None]
