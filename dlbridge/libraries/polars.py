"""polars: series, by their Arrow stream."""

import importlib.util
import sys
from typing import Any

from dlbridge.libraries.arrow_parts import Missing, parts_of_lists, parts_of_nullable, why_unpacked
from dlbridge.libraries.hints import COLUMNS, lacks, missing_values, no_numbers, several_types
from dlbridge.libraries.library import Arrays, Copied, Fact, Form, Library, Masked

INTEGERS = "pass {x}.to_physical()"


def columns(frame: Any, unpack: bool) -> list[tuple[str, Any]]:
    """The columns of a frame; bools, which Arrow has eight to a byte, as ndarrays."""
    dtype = sys.modules["polars"].Boolean
    return [(series.name, series.to_numpy() if unpack and series.dtype == dtype and not series.null_count() else series)
            for series in frame.get_columns()]


def series_like(series: Any, array: Any) -> Any:
    """A series of an array's values, which polars copies."""
    polars = sys.modules["polars"]
    made = polars.Series(series.name, array)
    if made.dtype == polars.Object:
        raise lacks("polars", array.dtype)
    return made


def memory_of_frame(frame: Any) -> Any:
    """The ndarray (rows, columns) of a frame whose columns are of one type of numbers, or None; or a copy of it."""
    dtypes, polars = set(frame.dtypes), sys.modules["polars"]
    if not dtypes:
        return None
    others = [dtype for dtype in dtypes if not (dtype.is_integer() or dtype.is_float() or dtype == polars.Boolean)]
    if others:
        raise no_numbers({series.name: f"of {series.dtype}" if series.dtype in others else "with nulls"
                          for series in frame.get_columns() if series.dtype in others or series.null_count()})
    if len(dtypes) > 1:
        raise several_types(dtypes, "pass x.cast(float)")
    if any(column.null_count() for column in frame.get_columns()):
        raise missing_values("pass x.fill_null(0), or x.drop_nulls()")
    try:
        return frame.to_numpy(allow_copy=False)
    except RuntimeError:
        pass                    # most frames have a block of memory for each column
    try:
        return Copied(frame.to_numpy())
    except polars.exceptions.PolarsError:
        return None             # NumPy has no integers of 128 bits


# ---- lists -----------------------------------------------------------------------------------------------------------

NUMBERS = {*(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)), "Float16", "Float32", "Float64"}
MISSING = Missing("x.drop_nulls()", "x.list.eval(polars.element().fill_null(0))", "x.explode()", "x.list.drop_nulls()")


def form_of_lists(series: Any) -> str | None:
    """Lists are taken apart by pyarrow, which polars asks for."""
    polars, dtype = sys.modules["polars"], series.dtype
    if not isinstance(dtype, polars.List):
        return None
    for kind in (polars.List, polars.Array):
        while isinstance(dtype, kind):
            dtype = dtype.inner
    return "ragged" if str(dtype) in NUMBERS and has_pyarrow() else None


def parts_of_series(series: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Of a clone, since polars puts the chunks together in the series that it is asked of."""
    return parts_of_lists(series.clone().to_arrow(), MISSING)


def has_nulls(series: Any) -> bool:
    """Whether numbers are missing; bools, whose memory no other library can share, are taken apart in any case."""
    name = str(series.dtype)
    return (name == "Boolean" or (bool(series.null_count()) and name in NUMBERS)) and has_pyarrow()


def has_pyarrow() -> bool:
    return "pyarrow" in sys.modules or importlib.util.find_spec("pyarrow") is not None


def why_copied(series: Any) -> str:
    if str(series.dtype) == "Boolean":
        return "it has eight bools in a byte"
    return "it is in several chunks" if series.n_chunks() > 1 else ""


LIBRARY = Library(
    name="polars",
    arrays=(
        Arrays(
            "Series",
            {
                "null_count": "pass {x}.fill_null(0), or {x}.drop_nulls()",
                "null lists": "pass {x}.drop_nulls()",
                "dictionary": "pass {x}.to_physical().cast(int).fill_null(-1)",
                "extension": "pass {x}.ext.storage()",
                "b": "pass {x}.fill_null(False).to_numpy()",
                **dict.fromkeys(("tdD", "tdm", "tts", "ttm", "tt", "ts", "tD"), INTEGERS),
                "vu": "pass {x}.cast(polars.Categorical).to_physical().cast(int).fill_null(-1)",
                "d": "pass {x}.cast(float)",
                "+s": "pass one of its fields, {x}.struct.field({x}.struct.fields[0])",
                "+": "pass {x}.explode()",
                "w": "no array library has objects",
                "flatten": ".explode()",
                "pyarrow": "x.to_arrow()",
            },
            made_like=Fact(series_like, "seen in 1.42", "has a name"),
            has_mask=Fact(has_nulls, "seen in 2.1.0", "may have nulls"),
            form_name=Fact(form_of_lists, "seen in 2.1.0", "may have the offsets of lists beside its elements"),
        ),
        Arrays("DataFrame", {"+s": COLUMNS},
               gives=Fact(memory_of_frame, "seen in 1.42", "has an array of NumPy for columns of one type"),
               columns=Fact(columns, "seen in 1.42", "has eight bools in a byte")),
        Arrays("LazyFrame", {"type": 'call dlbridge.convert_tree(x.collect(), to, columns="pass")'}),
        Arrays("Expr", {"type": "pass a column of the frame that it is evaluated in"}),
    ),
    forms={
        "ragged": Form((), parts_of_series, dense="x.explode()", copied=why_copied),
        "masked": Form((), lambda series: parts_of_nullable(series.clone().to_arrow()), dense="x.fill_null(0)",
                       copied=why_copied, masked=Masked(why_unpacked=why_unpacked)),
    },
)
