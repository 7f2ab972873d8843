"""pandas: series, by the ndarray that they lie over, or else by their Arrow stream."""

import sys
from typing import Any

import numpy as np

from dlbridge.errors import ConversionError, UnsupportedError, refusal
from dlbridge.libraries import arrow_parts, pandas_blocks
from dlbridge.libraries.hints import COLUMNS, lacks, missing_values, no_numbers, several_types
from dlbridge.libraries.library import Arrays, Copied, Fact, Form, Library, Masked
from dlbridge.libraries.profiles import INTEGERS


def memory_of(series: Any) -> Any:
    """The memory that a series lies over, as an ndarray or as an array of Arrow, or None.

    None of a series of pandas' own types that has missing values or stands for points in time: the error of its Arrow
    stream says more.
    """
    values = pandas_blocks.values_of(series) if pandas_blocks.in_use() else None
    if values is not None:
        return read_only(values)
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return None if dtype.kind in "mM" else series.values
    array, pandas = series.array, sys.modules["pandas"]
    if isinstance(array, (pandas.arrays.IntegerArray, pandas.arrays.BooleanArray)):
        try:
            return read_only(array.to_numpy(dtype.numpy_dtype))
        except ValueError:
            return None             # a value is missing
    if isinstance(dtype, pandas.ArrowDtype):
        return memory_of_arrow(array.__arrow_array__()) if dtype.kind in "iuf" else None
    if isinstance(array, pandas.arrays.FloatingArray):
        return None if array.isna().any() else read_only(array.to_numpy(dtype.numpy_dtype))
    if isinstance(array, pandas.arrays.SparseArray):
        raise refusal(UnsupportedError, "source", "type", "pandas.Series of SparseArray", "keeps its elements by index",
                      "pass x.sparse.to_dense()")
    return None


def series_like(series: Any, array: Any) -> Any:
    """A series of an array's values, which are copied: pandas promises that a write changes nothing else."""
    if array.dtype.isbuiltin == 2:          # registered by another library
        raise lacks("pandas", array.dtype)
    index = series.index if len(array) == len(series) else None
    return sys.modules["pandas"].Series(array, index, name=series.name, copy=True)


def memory_of_arrow(chunks: Any) -> Any:
    """The only chunk of numbers without nulls."""
    return chunks.chunk(0) if chunks.num_chunks == 1 and not chunks.null_count else None


def memory_of_frame(frame: Any) -> Any:
    """The ndarray (rows, columns) of a frame whose columns are of one type of numbers, or None; or a copy of it.

    A frame keeps columns of one type in one block, if it was made so; the first column then begins where all do.
    """
    block = pandas_blocks.only_block(frame) if pandas_blocks.in_use() else None
    if block is not None:
        return read_only(block.T)
    numbers = {dtype: getattr(dtype, "numpy_dtype", dtype) for dtype in frame.dtypes}
    if not numbers:
        return None
    others = [dtype for dtype, kind in numbers.items() if not (isinstance(kind, np.dtype) and kind.kind in "biufc")]
    if others:
        raise no_numbers({name: f"of {series.dtype}" if series.dtype in others else "with missing values"
                          for name, series in frame.items() if series.dtype in others or has_missing(series)})
    if len(numbers) > 1:
        raise several_types(numbers, 'pass x.astype("float64")')
    ((dtype, kind),) = numbers.items()
    if kind is not dtype and frame.isna().any(axis=None):
        raise missing_values("pass x.fillna(0), or x.dropna()")
    array = frame.to_numpy(kind)
    begins = array.ctypes.data == frame.iloc[:, 0].to_numpy(kind).ctypes.data
    return read_only(array) if begins else Copied(array)


def has_missing(series: Any) -> bool:
    """Whether values are missing; in NumPy's floats, NaN is a number."""
    return not isinstance(series.dtype, np.dtype) and bool(series.hasnans)


def read_only(array: Any) -> Any:
    """A view that cannot be written: other series may lie over the same memory, and pandas copies it on a write."""
    view = array.view()
    view.flags.writeable = False
    return view


def columns(frame: Any, unpack: bool) -> list[tuple[Any, Any]]:
    """The columns of a frame: numbers as the ndarrays that they are in, Arrow's bools, eight to a byte, unpacked."""
    return [
        (name, series.to_numpy() if isinstance(dtype := series.dtype, np.dtype) and dtype.kind in "biufc" else
         series.to_numpy("bool") if unpack and has_bits(series) else series)
        for name, series in frame.items()]


def has_bits(series: Any) -> bool:
    """Whether a series lies over bools of Arrow without nulls."""
    return str(getattr(series.dtype, "pyarrow_dtype", "")) == "bool" and not series.hasnans


# ---- arrays with missing values --------------------------------------------------------------------------------------

NULLABLE = {"IntegerArray": "iu", "FloatingArray": "f", "BooleanArray": "b"}     # each with the kinds of its dtypes


def memory_of_array(array: Any) -> Any:
    """The values of an array of which none is missing, or None."""
    return None if array.isna().any() else parts_of_masked(array)[1][0]


def array_of(values: Any) -> Any:
    """The array of a series, or an array itself."""
    return getattr(values, "array", values)


def chunks_of(values: Any) -> Any:
    """The chunks of a series of one of Arrow's types, or of an array of one; None of others."""
    if not isinstance(values.dtype, sys.modules["pandas"].ArrowDtype):
        return None
    return array_of(values).__arrow_array__()


def has_mask(values: Any) -> bool:
    chunks = chunks_of(values)
    if chunks is not None:
        return arrow_parts.has_nulls(chunks)
    array, arrays = array_of(values), sys.modules["pandas"].arrays
    is_nullable = isinstance(array, tuple(getattr(arrays, name) for name in NULLABLE))
    return is_nullable and bool(array.isna().any())


def parts_of_masked(values: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Views that cannot be written, or copies by public methods."""
    array, chunks = array_of(values), chunks_of(values)
    if chunks is not None:
        return arrow_parts.parts_of_nullable(chunks)
    parts = pandas_blocks.values_and_mask(array) if pandas_blocks.in_use() else None
    if parts is None:
        parts = [array.to_numpy(array.dtype.numpy_dtype, na_value=0), np.asarray(array.isna())]
    return (len(array),), [read_only(part) for part in parts]


def why_copied(values: Any) -> str:
    chunks = chunks_of(values)
    if chunks is not None:
        return arrow_parts.why_nullable_copied(chunks)
    return "" if pandas_blocks.in_use() else "pandas gives its values by a copy"


def why_unpacked(values: Any) -> str:
    return "" if chunks_of(values) is None else arrow_parts.why_unpacked(values)


def check(kind: Any, shape: tuple[int, ...], dtype: str, values: Any) -> None:
    if len(shape) != 1:
        raise refusal(ConversionError, "masked", "shape", shape, "is not of one axis, as arrays of pandas are",
                      "pass x.ravel()")
    fits = next(name for name, kinds in NULLABLE.items() if np.dtype(dtype).kind in kinds)
    if kind.__name__ != fits:
        raise refusal(ConversionError, "masked", "dtype", dtype, f"is none of {kind.__name__}",
                      f"pass pandas.arrays.{fits} for it")


def new_masked(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    values, mask = parts
    return kind(values, np.zeros(shape, bool) if mask is None else mask, copy=False)


LIBRARY = Library(
    name="pandas",
    private=Fact("libraries.pandas_blocks", "seen in 3.1.1", "makes several objects on the way to its own ndarray",
                 since="3.0", below="3.2"),
    arrays=(
        Arrays(
            "Series",
            {
                "null_count": "pass {x}.fillna(0), or {x}.dropna()",
                "null lists": "pass {x}.dropna()",
                "b": 'pass {x}.fillna(False).to_numpy("bool")',
                "tdD": 'pass {x}.astype("int32[pyarrow]")',
                "tdm": 'pass {x}.astype("int64[pyarrow]")',
                "tts": 'pass {x}.astype("int32[pyarrow]")',
                "ttm": 'pass {x}.astype("int32[pyarrow]")',
                "tt": 'pass {x}.astype("int64[pyarrow]")',
                **dict.fromkeys(("u", "U", "vu"), 'pass {x}.astype("category").cat.codes'),
                "ts": 'pass {x}.dropna().astype("int64")',
                "tD": 'pass {x}.dropna().astype("int64")',
                "d": 'pass {x}.astype("float64")',
                "+s": "pass one of its parts, {x}.struct.field(0)",
                "+": "pass {x}.list.flatten()",
                "flatten": ".list.flatten()",
            },
            gives=Fact(memory_of, "seen in 3.1.1",
                       "copies what is not contiguous, or has objects, into its Arrow stream"),
            made_like=Fact(series_like, "seen in 3.1.1", "has an index and a name"),
            has_mask=Fact(has_mask, "seen in 3.1.1", "may have missing values"),
        ),
        Arrays(
            "DataFrame",
            dict.fromkeys(("+s", "nothing", "uninstalled"), COLUMNS),
            gives=Fact(memory_of_frame, "seen in 3.1.1", "has columns of one type in one block"),
            columns=Fact(columns, "seen in 3.1.1", "has series as columns, some of them over Arrow's bools"),
        ),
        *(Arrays(name, gives=Fact(memory_of_array, "seen in 3.1.1", "has no protocol of arrays"),
                 has_mask=Fact(has_mask, "seen in 3.1.1", "may have missing values")) for name in NULLABLE),
        Arrays("Categorical", {"type": "pass x.codes"}),
        Arrays("CategoricalIndex", {"type": "pass x.codes"}),
        Arrays("MultiIndex", {"type": "pass the parts of x.codes one by one"}),
        *(Arrays(f"{kind}{form}", {"type": "pass x.asi8, where NaT is the least integer"})
          for kind in ("Datetime", "Timedelta", "Period") for form in ("Index", "Array")),
        *(Arrays(name, {"type": "there is no value to convert"}) for name in ("NAType", "NaTType")),
        Arrays("SparseArray", {"type": "pass x.to_dense()"}),
        *(Arrays(name, {"type": "pass pandas.Series(x)"}) for name in ("Index", "ExtensionArray")),
        *(Arrays(name, {"type": "pass numpy.int64(x.value)"}) for name in ("Timestamp", "Timedelta")),
        Arrays("BaseGroupBy", {"type": "aggregate it, or pass one group of it"}),
        Arrays("Period", {"type": "pass numpy.int64(x.ordinal)"}),
        Arrays("Interval", {"type": "pass numpy.array([x.left, x.right])"}),
    ),
    array_types=tuple(f"arrays.{name}" for name in NULLABLE),
    parts_of="numpy",
    dtypes=(Fact(("bool", *INTEGERS, "float32", "float64"), "seen in 3.1.1"),),
    forms={"masked": Form(tuple(NULLABLE), parts_of_masked, new_masked, check,
                          dense="x.to_numpy(float, na_value=float('nan'))", copied=why_copied,
                          duplicate=lambda array, detach: array.copy(), masked=Masked(why_unpacked=why_unpacked))},
    lacks=(Fact("SWAPPED_BYTES", "seen in 3.1.1", "computes with native byte order only"),),
)
