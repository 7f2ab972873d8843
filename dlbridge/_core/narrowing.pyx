"""The nearest type of a library that lacks a wide one. Nothing comes here but ``narrow=True``."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from dlbridge._core.numpy_api cimport array_data

import numpy as np

from dlbridge.errors import ConversionError, refusal

NEAREST = {"float64": "float32", "complex128": "complex64", "int64": "int32"}
ALIGNMENT = 256                 # as place.pyx has it: every library can share such memory


def narrowed(tensor, name):
    """A copy of a Tensor as an ndarray of a narrower type.

    Raises
    ------
    ConversionError
        A value has no form in that type: an integer that is too large, or a finite number that would become infinite.
    """
    array = np.asarray(tensor)
    # The copy has its axes in the order in which they lie in memory, as most copies have.
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    source = array.transpose(order)
    copied = empty(source.shape, name)
    fits = copy_integers if name == "int32" else copy_numbers
    fitted = fits(source, copied)
    made = copied.transpose(np.argsort(order))
    if not fitted:
        lost = made != array if name == "int32" else np.isfinite(array) & ~np.isfinite(made)
        index = np.unravel_index(np.argmax(lost), array.shape)
        raise refusal(ConversionError, "narrow", "value", f"{array[index]} at {tuple(map(int, index))}",
                      f"does not fit into {name}", "scale the values, or pass them in a wide type")
    return made


def copy_numbers(array, made):
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
    array = np.ascontiguousarray(array)
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


def empty(shape, name):
    """An aligned ndarray."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(name).itemsize
    memory = np.empty(nbytes + ALIGNMENT, "u1")
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start:start + nbytes].view(name).reshape(shape)
