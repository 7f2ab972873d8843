"""What Dask asks of a Tensor: how large it is, and what it is called."""

import pickle

import dask.array as da
import dask.base
import dask.sizeof
import ml_dtypes
import numpy as np
import pytest

import dlbridge

BASE = np.arange(24, dtype="float32").reshape(4, 6)
ARRAYS = {
    "C": BASE, "reversed": BASE[::-1], "holes": BASE[:, ::2], "one value": np.broadcast_to(np.float32(1), (1000, 1000)),
    "one row": np.broadcast_to(BASE[0], (100, 6)), "no axes": np.array(3.0), "empty": np.zeros((0, 4)),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_the_size_is_that_of_an_ndarray(array):
    assert dask.sizeof.sizeof(dlbridge.asdlpack(array)) == dask.sizeof.sizeof(array)


def test_the_size_of_elements_below_a_byte():
    packed = dlbridge.asdlpack(dlbridge.to_dlpack(np.arange(5).astype(ml_dtypes.int4)))
    assert dask.sizeof.sizeof(packed) == 3


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_the_token_says_what_is_in_it(array):
    tensor = dlbridge.asdlpack(array)
    token = dask.base.tokenize(tensor)
    assert token == dask.base.tokenize(pickle.loads(pickle.dumps(tensor)))
    assert token == dask.base.tokenize(dlbridge.asdlpack(array))
    if array.size:
        changed = array.copy()
        changed.flat[-1] += 1
        assert token != dask.base.tokenize(dlbridge.asdlpack(changed))


def test_tokens_tell_shapes_and_types_apart():
    memory = np.arange(16, dtype="uint8")
    sources = [memory, memory.reshape(4, 4), memory.reshape(2, 8), memory.view("int8"), memory.view("uint16"),
               memory.view(ml_dtypes.bfloat16), memory.reshape(4, 4).T, memory[::-1], memory[:8]]
    assert len({dask.base.tokenize(dlbridge.asdlpack(source)) for source in sources}) == len(sources)


def test_a_long_array_is_not_cut():
    """str() of an ndarray leaves out what is in the middle."""
    first, second = np.zeros(100_000), np.zeros(100_000)
    second[50_000] = 1
    assert dask.base.tokenize(dlbridge.asdlpack(first)) != dask.base.tokenize(dlbridge.asdlpack(second))


def test_a_function_of_a_script_runs_in_other_processes():
    """Dask sends a lambda by its value, with what accepts() keeps in its closure."""
    square = dlbridge.accepts("torch", returns="like")(lambda x: x.square())
    blocks = da.map_blocks(square, da.from_array(np.arange(8.0), chunks=4), dtype="float64")
    assert blocks.compute(scheduler="processes", num_workers=2).tolist() == [number**2 for number in range(8)]
