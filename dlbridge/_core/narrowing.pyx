"""The values of the nearest type of a library that lacks a wide one. Nothing comes here but ``narrow=True``."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from dlbridge._core.block cimport Managed
from dlbridge._core.cache cimport steal
from dlbridge._core.native.numpy cimport array_over
from dlbridge._core.numpy_api cimport array_data

import numpy as np

from dlbridge.errors import ConversionError, refusal


def narrow(size_t source, size_t into):
    """Copy the elements of a block into one of a narrower type, which is dense in any order of its axes.

    Both are addresses. NumPy computes the values.

    Raises
    ------
    ConversionError
        A value has no form in that type: an integer that is too large, or a finite number that would become infinite.
    """
    array, made = steal(array_over(<const Managed*> source)), steal(array_over(<const Managed*> into))
    of_integers = made.dtype == "int32"
    if (copy_integers if of_integers else copy_floats)(array, made):
        return
    lost = made != array if of_integers else np.isfinite(array) & ~np.isfinite(made)
    index = np.unravel_index(np.argmax(lost), array.shape)
    raise refusal(ConversionError, "narrow", "value", f"{array[index]} at {tuple(map(int, index))}",
                  f"does not fit into {made.dtype}", "scale the values, or pass them in a wide type")


def copy_floats(array, made):
    """Copy floating-point or complex numbers. Whether one became infinite, the processor notes on the way."""
    try:
        with np.errstate(over="raise", under="ignore", invalid="ignore"):
            np.copyto(made, array, casting="same_kind")
    except FloatingPointError:
        with np.errstate(over="ignore"):
            np.copyto(made, array, casting="same_kind")
        return not (np.isfinite(array) & ~np.isfinite(made)).any()
    return True


def copy_integers(array, made):
    """Copy integers, and look at each on the way, which NumPy does not."""
    order = sorted(range(made.ndim), key=lambda axis: -made.strides[axis])      # in which they lie in memory
    array = np.ascontiguousarray(array.transpose(order), np.int64)
    cdef const int64_t* source = <const int64_t*> array_data(array)
    cdef int32_t* target = <int32_t*> array_data(made)
    cdef int64_t count = made.size
    cdef int64_t index
    cdef uint64_t beyond = 0
    with nogil:
        for index in range(count):
            target[index] = <int32_t> source[index]
            beyond |= (<uint64_t> source[index] + (<uint64_t> 1 << 31)) >> 32
    return beyond == 0
