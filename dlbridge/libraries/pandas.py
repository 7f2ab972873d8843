"""pandas: series, by the ndarray that they lie over, or else by their Arrow stream."""

import sys
from typing import Any

import numpy as np

from dlbridge.libraries.library import Arrays, Fact, Library


def memory_of(series: Any) -> Any:
    """The ndarray that a series lies over, or None.

    None of a series of pandas' own types that has missing values or stands for points in time: the error of its Arrow
    stream says more. Sparse arrays cannot be read as Arrow; the error about their type says more.
    """
    dtype, arrays = series.dtype, sys.modules["pandas"].arrays
    if isinstance(dtype, np.dtype):
        return None if dtype.kind in "mM" else series.values
    if isinstance(series.array, arrays.SparseArray):
        return series.array
    if isinstance(series.array, (arrays.IntegerArray, arrays.FloatingArray, arrays.BooleanArray)):
        return None if series.hasnans else read_only(series.to_numpy(dtype.numpy_dtype))
    return None


def read_only(array: Any) -> Any:
    """A view that cannot be written: other series may lie over the same memory, and pandas copies it on a write."""
    view = array.view()
    view.flags.writeable = False
    return view


def columns(frame: Any, unpack: bool) -> list[tuple[Any, Any]]:
    """The columns of a frame; Arrow's bools, which it has eight to a byte, as ndarrays."""
    return [(name, series.to_numpy("bool") if unpack and has_bits(series) else series)
            for name, series in frame.items()]


def has_bits(series: Any) -> bool:
    """Whether a series lies over bools of Arrow without nulls."""
    return str(getattr(series.dtype, "pyarrow_dtype", "")) == "bool" and not series.hasnans


LIBRARY = Library(
    name="pandas",
    arrays=(
        Arrays(
            "Series",
            {
                "null_count": "pass x.fillna(0), or x.dropna()",
                "dictionary": 'pass x.astype("category").cat.codes',
                "chunks": "pass x.to_numpy()",
                "extension": 'pass x.array.asi8 of periods, else x.to_numpy()',
                "format b": 'pass x.fillna(False).to_numpy("bool")',
                "format td": 'pass x.astype("int32[pyarrow]"), or "int64[pyarrow]" if it has 64 bits',
                "format tt": 'pass x.astype("int32[pyarrow]"), or "int64[pyarrow]" if it has 64 bits',
                "format ts": 'pass x.astype("int64")',
                "format tD": 'pass x.astype("int64")',
                "format d": 'pass x.astype("float64")',
                "format +s": 'pass its parts, x.struct.field("name"), or x.array.left.to_numpy() of intervals',
                "format +": "pass x.list.flatten()",
            },
            gives=Fact(memory_of, "seen in 3.1.1",
                       "copies what is not contiguous, or has objects, into its Arrow stream"),
        ),
        Arrays(
            "DataFrame",
            {"format +s": "pass x.to_numpy() if its columns are of one type, or it to dlbridge.convert_tree"},
            columns=Fact(columns, "seen in 3.1.1", "has series as columns, some of them over Arrow's bools"),
        ),
        Arrays("Categorical", {"type": "pass x.codes"}),
        Arrays("CategoricalIndex", {"type": "pass x.codes"}),
        Arrays("MultiIndex", {"type": "pass the parts of x.codes one by one"}),
        *(Arrays(f"{kind}{form}", {"type": "pass x.asi8"})
          for kind in ("Datetime", "Timedelta", "Period") for form in ("Index", "Array")),
        *(Arrays(name, {"type": "there is no value to convert"}) for name in ("NAType", "NaTType")),
        Arrays("*", {"type": "pass x.to_numpy()"}),
    ),
)
