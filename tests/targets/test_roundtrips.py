"""Random arrays through every pair of targets and back, bit by bit."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exporters import enable_x64
from support.importers import IMPORTERS, deliver
from support.optional import marked

import dlbridge

pytestmark = pytest.mark.needs("jax")

NATIVE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128")
ML = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@st.composite
def arrays(draw, names=NATIVE):
    """An array of any shape, over memory that is larger, sliced, reversed, transposed, broadcast or swapped."""
    name = draw(st.sampled_from(names))
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    if name in NATIVE and draw(st.booleans()):
        dtype = dtype.newbyteorder()
    ndim = draw(st.integers(0, 4))
    shape, index = [], []
    for _ in range(ndim):
        extent = draw(st.integers(0, 4))
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        start = draw(st.integers(0, 2))
        room = start + extent * abs(step)
        shape.append(room)
        index.append(slice(start, room, step) if step > 0 else slice(room - 1, start - 1 if start else None, step))
    offset = draw(st.integers(0, 8))
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    seed = draw(st.integers(0, 2**32 - 1))
    memory = np.random.default_rng(seed).integers(0, 2 if name == "bool" else 256, nbytes + offset * dtype.itemsize,
                                                  np.uint8)
    array = memory[offset * dtype.itemsize:].view(dtype).reshape(shape)[(*index, ...)]
    array = array.transpose(draw(st.permutations(range(ndim))))
    if draw(st.booleans()):
        array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


def check(array, first, second):
    before = array.tobytes()
    native = array.astype(array.dtype.newbyteorder("=")).tobytes()
    with enable_x64(True):
        step = deliver(first, array)
        step = deliver(second, step)
        back = dlbridge.convert(step, "numpy")
    assert back.shape == array.shape
    assert back.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
    assert back.astype(back.dtype.newbyteorder("=")).tobytes() == native
    assert array.tobytes() == before


def pairs(without=(), having=None):
    """Every two importers, save those named in ``without``; only those with ``having`` among them, if it is given."""
    return [marked((first, second), id=f"{first.name}-{second.name}")
            for first in IMPORTERS for second in IMPORTERS
            if not {first.name, second.name} & set(without) and having in (None, first.name, second.name)]


@pytest.mark.parametrize(("first", "second"), pairs(without=["array_api_strict"]))
@given(array=arrays())
def test_native_types_through_every_pair(first, second, array):
    check(array, first, second)


@pytest.mark.needs("array_api_strict")
@pytest.mark.parametrize(("first", "second"), pairs(having="array_api_strict"))
@given(array=arrays([name for name in NATIVE if name != "float16"]))
def test_the_standards_types_through_its_strict_namespace(first, second, array):
    check(array, first, second)


@pytest.mark.parametrize(("first", "second"), pairs(without=["memoryview", "array_api_strict"]))
@given(array=arrays(ML))
def test_narrow_floats_through_every_pair(first, second, array):
    check(array, first, second)
