"""The ndarrays in which pandas keeps its columns, without the objects that its methods make on the way.

These parts are private: ``DataFrame._mgr``, with ``is_single_block`` and ``blocks``, ``Series._values``, and ``_data``
and ``_mask`` of arrays with missing values. They are used in the versions that ``Library.private`` names, and where
they are found; otherwise pandas' methods are called. What they give is looked at: an ndarray, or nothing. To do
without, delete this file, its calls in ``pandas.py``, and the fact ``private`` there.
"""

import functools
from typing import Any

import numpy as np

from dlbridge.libraries.library import uses_internals


@functools.cache
def in_use() -> bool:
    return uses_internals("pandas")


def only_block(frame: Any) -> Any:
    """The ndarray (columns, rows) that has all columns of a frame, or None."""
    try:
        manager = frame._mgr
        return numbers(manager.blocks[0].values) if manager.is_single_block else None
    except (AttributeError, IndexError):
        return None


def values_of(series: Any) -> Any:
    """The ndarray that has the values of a series, or None."""
    try:
        return numbers(series._values)
    except AttributeError:
        return None


def values_and_mask(array: Any) -> list[Any] | None:
    """The ndarrays of an array with missing values, or None."""
    try:
        parts = [array._data, array._mask]
    except AttributeError:
        return None
    return parts if all(type(part) is np.ndarray for part in parts) else None


def numbers(values: Any) -> Any:
    """An ndarray of numbers, or None."""
    return values if type(values) is np.ndarray and values.dtype.kind in "biufc" else None
