"""Write docs/matrix.md, its table and its picture from a run of every pair, or see whether a pair got worse since.

``python tools/pages matrix`` runs the matrix and writes the page; ``--check`` compares instead, and exits with 1 where
a pair got worse. ``--run FILE`` takes what ``dlbridge matrix --json`` wrote in place of a run, and ``--draw`` draws the
picture from the page alone. The site has the table of ``dlbridge matrix --html``, and code hosts the picture.
"""

from __future__ import annotations

import argparse
import pathlib
import re

from dlbridge.matrix.measure import measure
from dlbridge.matrix.page import table
from dlbridge.matrix.pair import OUTCOMES, Matrix, Pair
from dlbridge.matrix.report import (
    ARRAY,
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

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "matrix.md"
# By outcome; each can be read on white and on black, and so can the words.
COLOURS = {"returned": "#2878b5", "shared": "#1b8f6a", "copied": "#bf7400", "not here": "#747f8b",
           "impossible": "#747f8b", "failed": "#d9483b"}
OPACITIES = {"not here": 0.1, "impossible": 0.3}
INK = "#747f8b"
HEAD = """# Matrix

What `dlbridge.convert` does with an array of the row's library when the target is the column's, for {array}. The
numbers are those of the [reasons](#reasons).

<img class="on-code-hosts" src="matrix.svg" alt="Returned, shared, copied and impossible, each library into each other">

```{{raw}} html
:file: matrix.html
```

Each pair ran in a process of its own; every value was compared bit for bit, and the address told what is shared. A
library that dlbridge takes arrays from, and makes none of, is a row alone. The times are of one call of
`dlbridge.convert(array, to)`, with the destruction of its result. `dlbridge matrix` makes this table of the libraries
that are installed where you are, and `dlbridge matrix --html FILE` a page of it. This one is made by
`python tools/pages matrix`.

<!-- The outcomes, for `python tools/pages matrix --check`:

"""
ROW = re.compile(r"^\| (\w*) ?\|(.*)\|$", re.MULTILINE)

Outcomes = dict[Pair, str]


# ---- the page --------------------------------------------------------------------------------------------------------

def page(matrix: Matrix) -> str:
    """The whole page."""
    found = reasons(matrix)
    lines = [f"| | {' | '.join(matrix.targets)} |", f"|---|{':---:|' * len(matrix.targets)}"]
    lines += [f"| {source} | {' | '.join(cells(matrix, source, numbers(found)))} |" for source in matrix.sources]
    why = [f'{number}. <a id="reason-{number}"></a>`{SIGNS[reason.outcome]}` '
           f"{among(matrix, reason.pairs)}: {reason.text}" for number, reason in enumerate(found, 1)]
    where = (summary(matrix), versions_line(matrix), missing_line(matrix), machine_line(matrix.machine))
    outcomes = "\n".join(lines)
    parts = [f"{HEAD.format(array=ARRAY)}{outcomes}\n-->", "## Reasons", "\n".join(why), "## Where",
             *(f"{line}." for line in where if line)]
    return "\n\n".join(parts) + "\n"


def cells(matrix: Matrix, source: str, number: dict[Pair, int]) -> list[str]:
    """A sign for each target, with the number of its reason."""
    return [f"`{SIGNS[matrix.cells[source, target].outcome]}`"
            f"{brief(matrix, (source, target), number.get((source, target)))[1:]}" for target in matrix.targets]


# ---- the picture -----------------------------------------------------------------------------------------------------

SIDE, LEFT, TOP = 30, 118, 112          # of a cell; where the cells begin


def picture(text: str) -> str:
    """The table of a page as SVG: a coloured cell for each pair, with the number of its reason."""
    (_, targets), *rows = table_of(text)
    outcome_of = {sign: outcome for outcome, sign in SIGNS.items()}
    parts = []
    for column, target in enumerate(targets):
        x = LEFT + SIDE * column + SIDE / 2
        parts.append(words(target, x + 4, TOP - 8, "start", f"rotate(-55 {x:g} {TOP - 8})"))
    for row, (source, cells_of_row) in enumerate(rows):
        y = TOP + SIDE * row
        parts.append(words(source, LEFT - 8, y + 19, "end"))
        for column, cell in enumerate(cells_of_row):
            outcome = outcome_of[cell.strip("`")[0]]
            x = LEFT + SIDE * column
            parts.append(square(x + 1, y + 1, SIDE - 2, outcome))
            number = cell.partition("`")[2].partition("`")[2]
            if number:
                fill = INK if outcome in OPACITIES else "#ffffff"
                parts.append(words(number, x + SIDE / 2, y + 19, "middle", fill=fill))
    y = TOP + SIDE * len(rows) + 22
    for place, outcome in enumerate(OUTCOMES):
        x = LEFT + 110 * place
        parts.append(square(x, y - 11, 14, outcome) + words(outcome, x + 20, y + 1, "start"))
    width, height = LEFT + SIDE * len(targets) + 60, y + 14
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="system-ui, sans-serif" font-size="13">\n' + "\n".join(parts) + "\n</svg>\n")


def square(x: int, y: int, side: int, outcome: str) -> str:
    opacity = OPACITIES.get(outcome, 0.85)
    return (f'<rect x="{x}" y="{y}" width="{side}" height="{side}" rx="3" fill="{COLOURS[outcome]}" '
            f'fill-opacity="{opacity}"/>')


def words(text: str, x: float, y: float, anchor: str, transform: str = "", fill: str = INK) -> str:
    turned = f' transform="{transform}"' if transform else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}"{turned}>{text}</text>'


# ---- the check -------------------------------------------------------------------------------------------------------

def table_of(text: str) -> list[tuple[str, list[str]]]:
    """The lines of a page's table: the name on the left, and the cells."""
    return [(name, [cell.strip() for cell in rest.split("|")]) for name, rest in ROW.findall(text)]


def read(text: str) -> Outcomes:
    """The outcomes that a page tells."""
    (_, targets), *rows = table_of(text)
    outcome_of = {sign: outcome for outcome, sign in SIGNS.items()}
    return {(source, target): outcome_of[cell.strip("`")[0]]
            for source, row in rows for target, cell in zip(targets, row, strict=True)}


def compare(told: Outcomes, matrix: Matrix) -> tuple[list[str], list[str], int]:
    """The pairs that got worse, those that got better, and how many of the page's could not be run here."""
    worse, better = [], []
    ran = {pair for pair, cell in matrix.cells.items() if "not here" not in (cell.outcome, told.get(pair))}
    for pair in told.keys() & ran:
        cell = matrix.cells[pair]
        if cell.outcome != told[pair]:
            line = f"{' -> '.join(pair)}: {told[pair]} on the page, {cell.outcome} here: {cell.reason or 'shares'}"
            (worse if OUTCOMES.index(cell.outcome) > OUTCOMES.index(told[pair]) else better).append(line)
    return sorted(worse), sorted(better), len(told.keys() - ran)


def check(matrix: Matrix) -> int:
    """Say how the matrix stands to the page; 1 where a pair got worse."""
    told = read(PAGE.read_text(encoding="utf-8"))
    worse, better, absent = compare(told, matrix)
    for line in [*(f"worse: {line}" for line in worse), *(f"better: {line}" for line in better)]:
        print(line)
    print(f"{len(told) - absent} pairs compared, {len(worse)} worse, {len(better)} better; "
          f"{absent} of the page not compared: a library is not installed here, or was not named")
    return 1 if worse else 0


def main(words: list[str]) -> int:
    """Run, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help="compare only these")
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    parser.add_argument("--draw", action="store_true", help="draw the picture from the page")
    parser.add_argument("--run", metavar="FILE", help="what `dlbridge matrix --json` wrote")
    arguments = parser.parse_args(words)
    if arguments.libraries and not arguments.check:
        parser.error("the page is of all libraries; name some with --check alone")
    if arguments.draw:
        return draw()
    if arguments.run:
        matrix = from_json(pathlib.Path(arguments.run).read_text(encoding="utf-8"))
    else:
        matrix = measure(arguments.libraries)
    if arguments.check:
        return check(matrix)
    PAGE.write_text(page(matrix), encoding="utf-8")
    PAGE.with_suffix(".html").write_text(table(matrix), encoding="utf-8")
    return draw()


def draw() -> int:
    """Write the picture beside the page."""
    PAGE.with_suffix(".svg").write_text(picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0
