"""datasets of Hugging Face: tables on Arrow, whose rows may be chosen by an index."""

from typing import Any

from dlbridge.libraries.hints import COLUMNS
from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.pyarrow import columns

SEEN = "seen in 5.2.0"
FORMATS = ("numpy", "torch", "tensorflow", "jax")       # of which rows are arrays


def columns_of(dataset: Any, unpack: bool) -> list[tuple[str, Any]]:
    if dataset.format["type"] in FORMATS:
        return list(dataset[:].items())
    return columns(dataset.with_format("arrow")[:], unpack)


def array_of(column: Any, unpack: bool) -> Any:
    """All of a column, as one array."""
    if column.source.format["type"] in FORMATS:
        return column[:]
    return column.source.with_format("arrow")[:].column(column.column_name)


LIBRARY = Library(
    name="datasets",
    arrays=(
        Arrays("Dataset", {"": COLUMNS}, columns=Fact(columns_of, SEEN, "reads the rows that its index names",
                                                      since="2.0")),
        Arrays("Column", {"": "pass x[:]"}, columns=Fact(array_of, SEEN, "reads a column when it is asked",
                                                         since="4.0")),
    ),
)
