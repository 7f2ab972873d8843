"""``dlbridge matrix``: every library's arrays into every other, each pair in a process of its own."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dlbridge.matrix.pair import Cell
    from dlbridge.matrix.rows import Row

__all__ = ["Matrix", "Mistake", "add_arguments", "measure", "run"]

TABLE = "dlbridge.matrix.rows"
# Nobody wonders what goes on before.
SILENT_SECONDS = 2


class Mistake(Exception):
    """The user asked for what cannot be; the text says what to do."""


class Matrix(NamedTuple):
    """A cell for each pair (source, target) of the libraries that are installed here."""

    cells: dict[tuple[str, str], Cell]
    versions: dict[str, str]            # of each library that has one
    missing: dict[str, str]             # what pip is to install for the others
    machine: dict[str, Any]             # as the benchmark describes it

    @property
    def sources(self) -> list[str]:
        """The libraries whose arrays were converted."""
        return list(dict.fromkeys(source for source, _ in self.cells))

    @property
    def targets(self) -> list[str]:
        """The libraries that they were converted to."""
        return list(dict.fromkeys(target for _, target in self.cells))

    def failed(self) -> dict[tuple[str, str], Cell]:
        """The pairs that crashed, did not end, or gave wrong values."""
        return {pair: cell for pair, cell in self.cells.items() if cell.outcome == "failed"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of ``dlbridge matrix``."""
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help="only these (all that are installed)")
    parser.add_argument("--html", metavar="FILE", help="write a page to look at")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def choice(name: str, names: Iterable[str]) -> str:
    """What may have been meant, and all that could be."""
    known = list(names)
    near = get_close_matches(name, known, 1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"one of {', '.join(known)}"


def choose(rows: dict[str, Row], names: Sequence[str]) -> list[Row]:
    """The rows that are asked for, all of them by default."""
    for name in names:
        if name not in rows:
            raise Mistake(f"{name!r} is no library of the matrix ({choice(name, rows)})")
    return [row for row in rows.values() if not names or row.name in names]


def progress(total: int) -> Callable[[int, tuple[str, ...]], None]:
    """A line on a terminal that is written over, once this takes long."""
    start = time.monotonic()

    def tick(done: int, names: tuple[str, ...]) -> None:
        if sys.stderr.isatty() and time.monotonic() - start > SILENT_SECONDS:
            line = f"{done}/{total}: {' -> '.join(names)}" if done < total else ""
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    return tick


def measure(names: Sequence[str] = (), seconds: float = 120) -> Matrix:
    """Convert between all pairs of the libraries that are installed, or of those that are named."""
    import dlbridge
    from dlbridge.bench.report import machine
    from dlbridge.matrix.children import Call, ask
    from dlbridge.matrix.pair import Cell
    from dlbridge.matrix.rows import rows_of, sort_out, version_of

    found, missing = sort_out(choose(rows_of(TABLE), names))
    targets = set(dlbridge.targets())
    calls = {(source, target): Call("dlbridge.matrix.pair", "look", (TABLE, source, target))
             for source in found for target in found if target in targets}
    ended = ask(calls, progress(len(calls)), seconds)
    cells = {pair: Cell(*one.value) if one.value else Cell("failed", one.trouble) for pair, one in ended.items()}
    versions = {name: version for name, row in found.items() if (version := version_of(row))}
    return Matrix(cells, versions, missing, machine())


def run(arguments: argparse.Namespace) -> int:
    """Measure and show; 0 if every pair did what its libraries can, 1 if one did not."""
    from dlbridge.matrix import page, report

    if arguments.html:
        page.check_writable(arguments.html)
    matrix = measure(arguments.libraries)
    if not matrix.cells:
        raise Mistake(f"there is nothing to convert to ({report.missing_line(matrix) or 'name a target as well'})")
    if arguments.html:
        page.write(arguments.html, matrix)
    if arguments.json:
        print(report.as_json(matrix))
    else:
        report.show(matrix, sys.stdout)
    return 1 if matrix.failed() else 0
