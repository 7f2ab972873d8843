"""polars: series, by their Arrow stream."""

import sys
from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Library

INTEGERS = "pass x.to_physical()"


def columns(frame: Any, unpack: bool) -> list[tuple[str, Any]]:
    """The columns of a frame; bools, which Arrow has eight to a byte, as ndarrays."""
    dtype = sys.modules["polars"].Boolean
    return [(series.name, series.to_numpy() if unpack and series.dtype == dtype and not series.null_count() else series)
            for series in frame.get_columns()]


LIBRARY = Library(
    name="polars",
    arrays=(
        Arrays(
            "Series",
            {
                "null_count": "pass x.fill_null(0), or x.drop_nulls()",
                "dictionary": INTEGERS,
                "chunks": "pass x.rechunk()",
                "extension": "pass x.ext.storage()",
                "format b": "pass x.to_numpy()",
                **{f"format t{letter}": INTEGERS for letter in "dtsD"},
                "format d": "pass x.cast(float)",
                "format +s": 'pass its fields one by one, x.struct.field("name")',
                "format +": "pass x.explode()",
            },
        ),
        Arrays("DataFrame", {"format +s": "pass it to dlbridge.convert_tree"},
               columns=Fact(columns, "seen in 1.42", "has eight bools in a byte")),
        Arrays("LazyFrame", {"type": "pass the columns of x.collect() one by one"}),
        Arrays("Expr", {"type": "pass a column of the frame that it is evaluated in"}),
        Arrays("*", {"type": "pass x.to_numpy()"}),
    ),
)
