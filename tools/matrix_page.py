"""Write docs/matrix.md from a run of every pair, or see whether a pair got worse since it was written.

``matrix_page.py`` runs the matrix and writes the page; ``--check`` compares instead, and exits with 1 where a pair got
worse. ``--run FILE`` takes what ``dlbridge matrix --json`` wrote in place of a run.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys

from dlbridge.matrix.cells import OUTCOMES, Matrix, Pair
from dlbridge.matrix.measure import measure
from dlbridge.matrix.report import (
    ARRAY,
    MEANINGS,
    SIGNS,
    among,
    brief,
    from_json,
    machine_line,
    missing_line,
    numbers,
    reasons,
    summary,
    versions_line,
)

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "matrix.md"
HEAD = """# Matrix

What `dlbridge.convert` does with an array of each library (the rows) that is asked for by each other (the columns), for
{array}:

{legend}

Each pair ran in a process of its own; every value was compared bit for bit, and the address told what is shared. A
library that dlbridge takes arrays from, and makes none of, is a row alone. `dlbridge matrix` makes this table of the
libraries that are installed where you are, with times, and `dlbridge matrix --html FILE` a page of it. This one is made
by `tools/matrix_page.py`.

"""
ROW = re.compile(r"^\| (\w*) ?\|(.*)\|$", re.MULTILINE)

Outcomes = dict[Pair, str]


# ---- the page --------------------------------------------------------------------------------------------------------

def page(matrix: Matrix) -> str:
    """The whole page."""
    found = reasons(matrix)
    legend = "\n".join(f"- `{SIGNS[outcome]}` {outcome}: {MEANINGS[outcome]};" for outcome in OUTCOMES)
    lines = [f"| | {' | '.join(matrix.targets)} |", f"|---|{':---:|' * len(matrix.targets)}"]
    lines += [f"| {source} | {' | '.join(cells(matrix, source, numbers(found)))} |" for source in matrix.sources]
    why = [f"{number}. `{SIGNS[reason.outcome]}` {among(matrix, reason.pairs)}: {reason.text}"
           for number, reason in enumerate(found, 1)]
    where = (summary(matrix), versions_line(matrix), missing_line(matrix), machine_line(matrix.machine))
    parts = [HEAD.format(array=ARRAY, legend=legend[:-1] + ".") + "\n".join(lines), "## Reasons", "\n".join(why),
             "## Where", *(f"{line}." for line in where if line)]
    return "\n\n".join(parts) + "\n"


def cells(matrix: Matrix, source: str, number: dict[Pair, int]) -> list[str]:
    """A sign for each target, with the number of its reason."""
    return [f"`{SIGNS[matrix.cells[source, target].outcome]}`"
            f"{brief(matrix, (source, target), number.get((source, target)))[1:]}" for target in matrix.targets]


# ---- the check -------------------------------------------------------------------------------------------------------

def read(text: str) -> Outcomes:
    """The outcomes that a page tells."""
    table = [(name, [cell.strip() for cell in rest.split("|")]) for name, rest in ROW.findall(text)]
    (_, targets), *rows = table
    outcome_of = {sign: outcome for outcome, sign in SIGNS.items()}
    return {(source, target): outcome_of[cell.strip("`")[0]]
            for source, row in rows for target, cell in zip(targets, row, strict=True)}


def compare(told: Outcomes, matrix: Matrix) -> tuple[list[str], list[str], int]:
    """The pairs that got worse, those that got better, and how many of the page's could not be run here."""
    worse, better = [], []
    for pair in told.keys() & matrix.cells.keys():
        cell = matrix.cells[pair]
        if cell.outcome != told[pair]:
            line = f"{' -> '.join(pair)}: {told[pair]} on the page, {cell.outcome} here: {cell.reason or 'shares'}"
            (worse if OUTCOMES.index(cell.outcome) > OUTCOMES.index(told[pair]) else better).append(line)
    return sorted(worse), sorted(better), len(told.keys() - matrix.cells.keys())


def check(matrix: Matrix) -> int:
    """Say how the matrix stands to the page; 1 where a pair got worse."""
    told = read(PAGE.read_text(encoding="utf-8"))
    worse, better, absent = compare(told, matrix)
    for line in [*(f"worse: {line}" for line in worse), *(f"better: {line}" for line in better)]:
        print(line)
    print(f"{len(told) - absent} pairs compared, {len(worse)} worse, {len(better)} better; "
          f"{absent} of the page not compared: a library is not installed here, or was not named")
    return 1 if worse else 0


def main(words: list[str] | None = None) -> int:
    """Run, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help="compare only these")
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    parser.add_argument("--run", metavar="FILE", help="what `dlbridge matrix --json` wrote")
    arguments = parser.parse_args(words)
    if arguments.libraries and not arguments.check:
        parser.error("the page is of all libraries; name some with --check alone")
    if arguments.run:
        matrix = from_json(pathlib.Path(arguments.run).read_text(encoding="utf-8"))
    else:
        matrix = measure(arguments.libraries)
    if arguments.check:
        return check(matrix)
    PAGE.write_text(page(matrix), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
