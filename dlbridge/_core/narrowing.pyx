"""The error for the first value that does not fit into the nearest type, where narrow=True asks for that type."""

from dlbridge._core.block cimport Managed
from dlbridge._core.cache cimport steal
from dlbridge._core.dtypes cimport nearest_row, row_name
from dlbridge._core.native.numpy cimport array_over

import numpy as np

from dlbridge.errors import ConversionError, refusal


def first_lost(size_t source):
    """The error for the memory at this address: an integer is too large, or a finite number would become infinite."""
    array = steal(array_over(<const Managed*> source))
    name = row_name(nearest_row((<const Managed*> source).row))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        narrow = array.astype(name)
    if name == "int32":
        lost = narrow != array
    else:           # a complex number has two values
        lost = np.isfinite(array.real) & ~np.isfinite(narrow.real) | np.isfinite(array.imag) & ~np.isfinite(narrow.imag)
    if not lost.any():          # another thread has written meanwhile
        return refusal(ConversionError, "narrow", "values", "", f"did not all fit into {name}",
                       "scale the values, or pass them in a wide type")
    index = np.unravel_index(np.argmax(lost), array.shape)
    return refusal(ConversionError, "narrow", "value", f"{array[index]} at {tuple(map(int, index))}",
                   f"does not fit into {name}", "scale the values, or pass them in a wide type")
