"""The command ``dlbridge matrix``: the measurement of all pairs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import dlbridge
from dlbridge.matrix import page, report
from dlbridge.matrix.children import Call, ask, progress
from dlbridge.matrix.machine import machine
from dlbridge.matrix.pair import Cell, Matrix
from dlbridge.matrix.rows import TABLE, Row, rows_of, sort_out, version_of
from dlbridge.matrix.terminal import Mistake, choice


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of ``dlbridge matrix``."""
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help="only these (all that are installed)")
    parser.add_argument("--html", metavar="FILE", help="write a page to look at")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Measure and show; return 0 if every pair did what its libraries can, and 1 if one did not."""
    if arguments.html:
        page.check_writable(arguments.html)
    matrix = measure(arguments.libraries)
    if not matrix.cells:
        raise Mistake(f"there is nothing to convert to ({report.missing_line(matrix) or 'name a target as well'})")
    if arguments.html:
        Path(arguments.html).write_text(page.html(matrix), encoding="utf-8")
    if arguments.json:
        print(report.as_json(matrix))
    else:
        report.show(matrix, sys.stdout)
    return 1 if matrix.failed() else 0
