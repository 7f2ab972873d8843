"""empty(): new memory that every library can share."""

import numpy as np
import pytest
from support.optional import params

import dlbridge


@pytest.mark.parametrize(("shape", "dtype", "nbytes"), [
    ((2, 3), "float32", 24), (5, "float64", 40), ((), "int8", 1), ((0, 4), "bfloat16", 0), ([3], np.dtype("<i2"), 6),
    ((3,), "uint4", 2),
])
def test_new_memory_is_compact_aligned_and_writable(shape, dtype, nbytes):
    made = dlbridge.empty(shape, dtype)
    assert made.shape == (tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))
    assert (made.nbytes, made.readonly, made.device, made.data_ptr % 256) == (nbytes, False, "cpu", 0)
    assert dlbridge.empty(2).dtype == "float64"


@pytest.mark.parametrize("target", params(["numpy", "torch", "jax", "memoryview"]))
def test_every_library_shares_it(target):
    made = dlbridge.empty((2, 3), "float32")
    dlbridge.convert(made, "numpy")[:] = 7
    with dlbridge.watch() as copies:
        shared = dlbridge.convert(made, target, readonly="share")
    assert list(copies) == []
    address = made.data_ptr
    del made
    assert dlbridge.asdlpack(shared, readonly="share").data_ptr == address
    assert (np.asarray(shared) == 7).all()


@pytest.mark.parametrize(("shape", "dtype", "error", "text"), [
    ("x", "int8", TypeError, "empty: shape 'x': is no tuple of integers"),
    (-1, "int8", dlbridge.ConversionError, r"empty: shape \(-1,\): has a negative extent"),
    ((1 << 40, 1 << 40), "int8", dlbridge.ConversionError, "has more bytes than any memory"),
    (2, ">f4", dlbridge.ConversionError, "empty: dtype '>f4': is of the other byte order"),
    (2, "nope", dlbridge.ConversionError, "empty: dtype 'nope': is no type that dlbridge knows"),
    ((1 << 46,), "int8", MemoryError, r"empty: shape \(70368744177664,\): takes 70368744177664 bytes, which are not "),
])
def test_what_cannot_be_made_is_refused(shape, dtype, error, text):
    with pytest.raises(error, match=text):
        dlbridge.empty(shape, dtype)
