"""The measurement of all pairs."""

from collections.abc import Sequence

import dlbridge
from dlbridge.matrix.cells import Cell, Matrix
from dlbridge.matrix.children import Call, ask
from dlbridge.matrix.machine import machine
from dlbridge.matrix.mistakes import Mistake, choice
from dlbridge.matrix.progress import progress
from dlbridge.matrix.rows import TABLE, Row, rows_of, sort_out, version_of


def choose(rows: dict[str, Row], names: Sequence[str]) -> list[Row]:
    """Select the rows with these names, or all rows where no name is given."""
    for name in names:
        if name not in rows:
            raise Mistake(f"{name!r} is no library of the matrix ({choice(name, rows)})")
    return [row for row in rows.values() if not names or row.name in names]


def measure(names: Sequence[str] = (), seconds: float = 120) -> Matrix:
    """Convert between all pairs of the installed libraries, or of those that are named."""
    found, missing = sort_out(choose(rows_of(TABLE), names))
    targets = set(dlbridge.targets())
    calls = {(source, target): Call("dlbridge.matrix.pair", "look", (TABLE, source, target))
             for source in found for target in found if target in targets}
    ended = ask(calls, progress(len(calls)), seconds)
    cells = {pair: Cell(*one.value) if one.value else Cell("failed", one.trouble) for pair, one in ended.items()}
    versions = {name: version for name, row in found.items() if (version := version_of(row))}
    return Matrix(cells, versions, missing, machine())
