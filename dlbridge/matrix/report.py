"""The matrix as text or as JSON."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from textwrap import fill
from typing import Any, NamedTuple, TextIO

import dlbridge
from dlbridge.matrix.pair import ALIGNMENT, DTYPE, OUTCOMES, SHAPE, Cell, Matrix, Pair
from dlbridge.matrix.terminal import Segment, styled, width_of
from dlbridge.matrix.terminal import show as show_lines

SIGNS = {"returned": "-", "shared": "=", "copied": "+", "not here": ".", "impossible": "x", "failed": "!"}
MEANINGS = {
    "returned": "the array itself",
    "shared": "the same memory",
    "copied": "memory of its own",
    "not here": "the library cannot run on this machine",
    "impossible": "refused, with a reason",
    "failed": "crashed, did not end, or gave wrong values",
}
ARRAY = f"{DTYPE} {SHAPE}, in C order, writable, aligned to {ALIGNMENT} bytes"
REASONS_WIDTH = 110

class Reason(NamedTuple):
    """A reason not to share, and the pairs that it holds for."""

    outcome: str
    text: str
    pairs: tuple[Pair, ...]


# ---- in words --------------------------------------------------------------------------------------------------------

def reasons(matrix: Matrix) -> list[Reason]:
    """List every reason once, the worst outcome first; reasons that differ only in the target's name count as one."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair, cell in matrix.cells.items():
        source, target = pair
        text = why(cell) if source == target else re.sub(rf"\b{re.escape(target)}\b", "the target", why(cell))
        if text:
            groups.setdefault((cell.outcome, text), []).append(pair)
    found = []
    for (outcome, text), pairs in groups.items():
        words = {why(matrix.cells[pair]) for pair in pairs}
        found.append(Reason(outcome, words.pop() if len(words) == 1 else text, tuple(pairs)))
    return sorted(found, key=lambda reason: -OUTCOMES.index(reason.outcome))


def why(cell: Cell) -> str:
    """Put the reason and the hint into a text, without the address, which differs from run to run."""
    reason = re.sub(r" at 0x[0-9a-f]+", "", cell.reason)
    return f"{reason} ({cell.hint})" if cell.hint else reason


def numbers(found: Iterable[Reason]) -> dict[Pair, int]:
    """Map each pair to the number of its reason in the list, counted from 1."""
    return {pair: number for number, reason in enumerate(found, 1) for pair in reason.pairs}


def among(matrix: Matrix, pairs: Iterable[Pair]) -> str:
    """Describe pairs in few words, as in ``jax, tensorflow -> torch``; targets with the same sources go together."""
    targets: dict[str, list[str]] = {}
    for source, target in pairs:
        targets.setdefault(target, []).append(source)
    groups: dict[tuple[str, ...], list[str]] = {}
    for target, sources in targets.items():
        groups.setdefault(tuple(sources), []).append(target)
    return "; ".join(f"{listed(sources, matrix.sources)} -> {listed(some, matrix.targets)}"
                     for sources, some in groups.items())


def listed(some: Iterable[str], every: list[str]) -> str:
    """List names, or, where they are fewer, the names that are left out."""
    given = list(some)
    others = [name for name in every if name not in given]
    if len(given) < 2 or len(others) * 2 >= len(given):
        return ", ".join(given)
    return f"all but {', '.join(others)}" if others else "all"


def duration(nanoseconds: float | None) -> str:
    """Write a time in two or three digits, in a unit that suits it."""
    if nanoseconds is None:
        return ""
    scale, unit = next((pair for pair in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if nanoseconds >= pair[0]), (1, "ns"))
    figure = nanoseconds / scale
    return f"{figure:.1f} {unit}" if figure < 10 and scale > 1 else f"{figure:.0f} {unit}"


def counts(matrix: Matrix) -> dict[str, int]:
    """Count the pairs with each outcome."""
    return {outcome: sum(cell.outcome == outcome for cell in matrix.cells.values()) for outcome in OUTCOMES}


def summary(matrix: Matrix) -> str:
    """Write the counts in a line."""
    return f"{len(matrix.cells)} pairs: " + ", ".join(f"{count} {name}" for name, count in counts(matrix).items())


def machine_line(here: Mapping[str, Any]) -> str:
    """Name the machine of the run."""
    return f"{here['cpu']}, {here['cpus']} CPUs, {here['system']}, {here['python']}"


def versions_line(matrix: Matrix) -> str:
    """Name the libraries of the run, with their versions."""
    return ", ".join(f"{name} {version}" for name, version in matrix.versions.items())


def missing_line(matrix: Matrix) -> str:
    """Name the libraries that were not installed, and how to install them; empty where there are none."""
    if not matrix.missing:
        return ""
    return f"not installed: {', '.join(matrix.missing)} (pip install {' '.join(matrix.missing.values())})"


# ---- the table -------------------------------------------------------------------------------------------------------

def with_times(matrix: Matrix, pair: Pair, number: int | None) -> str:
    """Write a cell with its time, for a wide table."""
    return f"{brief(matrix, pair, number)} {duration(matrix.cells[pair].nanoseconds)}".rstrip()


def brief(matrix: Matrix, pair: Pair, number: int | None) -> str:
    """Write a cell with the number of its reason."""
    return f"{SIGNS[matrix.cells[pair].outcome]}{number or ''}"


def sign(matrix: Matrix, pair: Pair, number: int | None) -> str:
    """Write a cell as its sign alone, for a narrow table."""
    return SIGNS[matrix.cells[pair].outcome]


# The forms of the table: how a cell is written, and whether the targets' names run from top to bottom.
LAYOUTS: tuple[tuple[Callable[[Matrix, Pair, int | None], str], bool], ...] = (
    (with_times, False), (brief, True), (sign, True))


def table(matrix: Matrix, width: float) -> list[list[Segment]]:
    """Lay the table out in the widest layout that fits, or else in the narrowest."""
    for layout in LAYOUTS:
        lines = laid_out(matrix, *layout)
        if sum(len(text) for text, _ in lines[-1]) <= width:
            break
    return lines


def laid_out(
    matrix: Matrix, form: Callable[[Matrix, Pair, int | None], str], upright: bool,
) -> list[list[Segment]]:
    """Write the lines of the headings, and a line for each source."""
    number = numbers(reasons(matrix))
    words = {pair: form(matrix, pair, number.get(pair)) for pair in matrix.cells}
    heads = {target: list(target) if upright else [target] for target in matrix.targets}
    widths = {target: max(len(text) for text in [*heads[target], *(words[source, target] for source in matrix.sources)])
              for target in matrix.targets}
    height = max(map(len, heads.values()))
    left = max(map(len, matrix.sources))
    lines: list[list[Segment]] = [
        [(" " * left, ""), *((f"  {([''] * (height - len(heads[target])) + heads[target])[row]:{widths[target]}}", "")
                             for target in matrix.targets)] for row in range(height)]
    lines += [[(f"{source:{left}}", ""),
               *(styled(matrix.cells[source, target].outcome, f"  {words[source, target]:{widths[target]}}")
                 for target in matrix.targets)] for source in matrix.sources]
    return lines


def legend(matrix: Matrix) -> list[list[Segment]]:
    """Explain the signs that the table has."""
    found = counts(matrix)
    return [[styled(outcome, SIGNS[outcome]), (f"  {outcome}: {MEANINGS[outcome]}", "")]
            for outcome in OUTCOMES if found[outcome]]


def document(matrix: Matrix, width: float) -> list[list[Segment]]:
    """Put everything that is shown into lines."""
    wrap = int(min(width, REASONS_WIDTH))

    def wrapped(text: str, indent: str = "", outcome: str = "") -> list[list[Segment]]:
        return [[styled(outcome, line)] for line in fill(text, wrap, subsequent_indent=indent).splitlines()]

    head = wrapped(f"dlbridge {dlbridge.__version__}: from the row's library to the column's, {ARRAY}")
    footnotes = [line for number, reason in enumerate(reasons(matrix), 1) for line in wrapped(
        f"{SIGNS[reason.outcome]}{number}  {among(matrix, reason.pairs)}: {reason.text}", "    ",
        reason.outcome if reason.outcome == "failed" else "")]
    closing = [versions_line(matrix), machine_line(matrix.machine), missing_line(matrix), summary(matrix)]
    return [*head, [], *table(matrix, width), [], *legend(matrix), [], *footnotes, *([[]] if footnotes else []),
            *(line for text in closing for line in wrapped(text))]


def show(matrix: Matrix, out: TextIO) -> None:
    """Print the matrix."""
    show_lines(document(matrix, width_of(out)), out)


# ---- JSON ------------------------------------------------------------------------------------------------------------

def as_json(matrix: Matrix) -> str:
    """Write the matrix as JSON."""
    pairs: list[Mapping[str, Any]] = [
        {"source": source, "target": target, **cell._asdict()} for (source, target), cell in matrix.cells.items()]
    return json.dumps({
        "dlbridge": dlbridge.__version__,
        "machine": matrix.machine,
        "libraries": matrix.versions,
        "missing": matrix.missing,
        "array": {"dtype": DTYPE, "shape": SHAPE, "alignment": ALIGNMENT},
        "pairs": pairs,
    }, indent=1)


def from_json(text: str) -> Matrix:
    """Read what as_json() wrote."""
    run = json.loads(text)
    cells = {(pair.pop("source"), pair.pop("target")): Cell(**pair) for pair in run["pairs"]}
    return Matrix(cells, run["libraries"], run["missing"], run["machine"])
