"""The nearest type of a library that lacks a wide one. Nothing comes here but ``narrow=True``."""

from typing import Any

import numpy as np

from dlbridge.errors import ConversionError, refusal

NEAREST = {"float64": "float32", "complex128": "complex64", "int64": "int32"}
ALIGNMENT = 256                 # as place.pyx has it: every library can share such memory


def narrowed(tensor: Any, name: str) -> Any:
    """A copy of a Tensor as an ndarray of a narrower type.

    Raises
    ------
    ConversionError
        A value has no form in that type: an integer that is too large, or a finite number that would become infinite.
    """
    array = np.asarray(tensor)
    made = empty(array.shape, name)
    with np.errstate(over="ignore"):
        np.copyto(made, array, casting="same_kind")
    lost = made != array if name == "int32" else np.isfinite(array) & ~np.isfinite(made)
    if lost.any():
        index = np.unravel_index(np.argmax(lost), array.shape)
        raise refusal(ConversionError, "narrow", "value", f"{array[index]} at {tuple(map(int, index))}",
                      f"does not fit into {name}", "scale the values, or pass them in a wide type")
    return made


def empty(shape: tuple[int, ...], name: str) -> Any:
    """An aligned ndarray."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(name).itemsize
    memory = np.empty(nbytes + ALIGNMENT, "u1")
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start:start + nbytes].view(name).reshape(shape)
