"""A run as a table and as JSON, and its comparison with the goals."""

import importlib.util
import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import dlbridge
from bench.groups import load
from bench.measure import Address, Figure, Result
from bench.rows import LIBRARIES, version
from dlbridge.matrix.machine import machine

HEADINGS = ("row", "dlbridge", "beside", "its own", "ratio", "goal", "floor", "x floor")
RIGHT = {"dlbridge", "its own", "ratio", "goal", "floor", "x floor"}

Goals = dict[Address, dict[str, float]]


class Mistake(Exception):
    """The user asked for something impossible; the text says what to do instead."""


class Verdict(NamedTuple):
    """One goal, and the best figure of all runs of its row, which is None if nothing was measured."""

    address: Address
    label: str
    goal: float
    best: float | None
    reason: str = ""

    @property
    def met(self) -> bool:
        return self.best is not None and self.best <= self.goal

    def __str__(self) -> str:
        where = f"{self.address.group}: {self.address.row}: beside {self.label}"
        if self.best is None:
            return f"{where}: not measured: {self.reason}"
        return f"{where}: {self.best:.4g}, the goal is at most {self.goal:.4g}"


# ---- goals -----------------------------------------------------------------------------------------------------------

def read_goals(path: str) -> Goals:
    """Read a file of goals: ``{group: {row: {label: at most}}}``."""
    try:
        text = json.loads(Path(path).read_text(encoding="utf-8"))
        return {Address(group, row): {label: float(goal) for label, goal in labels.items()}
                for group, rows in text.items() for row, labels in rows.items()}
    except OSError as error:
        raise Mistake(f"--check: {path}: {error.strerror} (the goals are in benchmarks/goals.json)") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise Mistake(f"--check: {path}: no goals: {error} (write {{group: {{row: {{label: at most}}}}}})") from error


def value(result: Result, label: str) -> float | None:
    """Find the figure that a goal is about: a ratio, or the median itself if the label is its unit."""
    if result.ours and label == result.unit:
        return result.ours.median
    return result.natives[label].ratio if label in result.natives else None


def judge(goals: Goals, runs: Sequence[Mapping[Address, Result]]) -> list[Verdict]:
    """Compare every goal with the best run, because a goal is about what the machine can do."""
    return [verdict(address, label, goal, [run[address] for run in runs if address in run])
            for address, labels in goals.items() for label, goal in labels.items()]


def verdict(address: Address, label: str, goal: float, results: Sequence[Result]) -> Verdict:
    """Compare one goal with all runs of its row."""
    if not results:
        return Verdict(address, label, goal, None, "there is no such row")
    values = [found for result in results if (found := value(result, label)) is not None]
    if values:
        return Verdict(address, label, goal, min(values))
    reasons = results[-1].missing
    why = reasons.get(label) or reasons.get("dlbridge") or "there is no such label"
    return Verdict(address, label, goal, None, why)


def best_results(goals: Goals, runs: Sequence[Mapping[Address, Result]]) -> list[Result]:
    """Take each row of the first run from the run in which it did best by its goals."""
    def distance(result: Result) -> float:
        labels = goals.get(result.address, {})
        values = [(value(result, label), goal) for label, goal in labels.items()]
        return max((found / goal for found, goal in values if found is not None), default=math.inf)

    return [min((run[address] for run in runs if address in run), key=distance) for address in runs[0]]


# ---- the table -------------------------------------------------------------------------------------------------------

def number(figure: float) -> str:
    """Write a figure with two or three digits, and never with an exponent."""
    if figure >= 100:
        return f"{figure:.0f}"
    if 0 < figure < 1e-4:
        return "<0.0001"
    return f"{figure:.2f}" if figure >= 0.095 or not figure else f"{figure:.2g}"


def amount(figure: Figure | None, unit: str) -> str:
    """Write a median in a unit that suits it."""
    if figure is None:
        return ""
    if unit != "ns":
        return f"{number(figure.median)} {unit}"
    scale = next((scale for scale in (1e9, 1e6, 1e3) if figure.median >= scale * 10), 1)
    return f"{number(figure.median / scale)} { {1e9: 's', 1e6: 'ms', 1e3: 'µs', 1: 'ns'}[scale]}"


def lines(result: Result, goals: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Write the lines of one row: one for each native, and one for each that could not be measured."""
    if result.ours is None:
        return [(result.address.row, "", short(result.missing["dlbridge"]), "", "", "", "", "")]
    beside: list[tuple[str, str, str, str]] = [
        (label, amount(figure, result.unit), number(figure.ratio), goal_text(goals.get(label)))
        for label, figure in result.natives.items()]
    beside += [(short(reason), "", "", goal_text(goals.get(label)))
               for label, reason in result.missing.items() if label != "floor"]
    beside = beside or [("", "", "", goal_text(goals.get(result.unit)))]
    ours = amount(result.ours, result.unit)
    floor = amount(result.floor, result.unit)
    times = number(result.floor.ratio) if result.floor else ""
    return [(*((result.address.row, ours) if first else ("", "")), *cells, *((floor, times) if first else ("", "")))
            for first, cells in zip([True] + [False] * len(beside), beside, strict=False)]


def short(reason: str) -> str:
    """Shorten a reason to what a table has room for; JSON has all of it."""
    return textwrap.shorten(reason, 70, placeholder=" ...")


def goal_text(goal: float | None) -> str:
    return "" if goal is None else f"<= {number(goal)}"


def print_table(results: Iterable[Result], goals: Goals, out: TextIO) -> None:
    """Print the results by rich if it is installed, or else in plain columns."""
    sections = [
        (load(name).GROUP.title, [line for result in some for line in lines(result, goals.get(result.address, {}))])
        for name, some in groupby(results, key=lambda result: result.address.group)]
    used = [index for index in range(len(HEADINGS)) if any(line[index] for _, some in sections for line in some)]
    headings = [HEADINGS[index] for index in used]
    shown = [(title, [[line[index] for index in used] for line in some]) for title, some in sections]
    (rich_table if importlib.util.find_spec("rich") else plain_table)(headings, shown, out)


def rich_table(headings: list[str], sections: list[tuple[str, list[list[str]]]], out: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in RIGHT else "left", overflow="fold")
    for title, some in sections:
        table.add_row(Text(title, style="bold"))
        for line in some:
            table.add_row(*(Text(cell) for cell in line))
        table.add_section()
    # A pipe has no width; 200 columns show every cell.
    Console(file=out, width=None if out.isatty() else 200).print(table)


def plain_table(headings: list[str], sections: list[tuple[str, list[list[str]]]], out: TextIO) -> None:
    every = [headings, *(line for _, some in sections for line in some)]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]

    def text(line: list[str]) -> str:
        return "  ".join(cell.rjust(width) if heading in RIGHT else cell.ljust(width)
                         for heading, cell, width in zip(headings, line, widths, strict=True)).rstrip()

    print(text(headings), file=out)
    for title, some in sections:
        print(f"\n{title}", *map(text, some), sep="\n", file=out)


# ---- where it was measured -------------------------------------------------------------------------------------------

def libraries() -> dict[str, str | None]:
    """Map each library of the groups to its version, or to None if it is not installed."""
    return {name: version(name) for name in LIBRARIES}


def header(floors: str) -> str:
    """Say where and with what this is measured; ``floors`` is the reason if there are no floors."""
    here = machine()
    found = ", ".join(f"{name} {known}" for name, known in libraries().items() if known)
    text = [f"dlbridge {dlbridge.__version__}, {here['python']}, {here['cpu']} ({here['cpus']} CPUs), {here['system']}",
            f"found: {found}"]
    absent = [LIBRARIES[name].distribution for name, known in libraries().items() if not known]
    if absent:
        text.append(f"not installed: {', '.join(absent)} (pip install {' '.join(absent)})")
    return "\n".join([*text, *([f"no floors: {floors}"] if floors else [])])


# ---- JSON ------------------------------------------------------------------------------------------------------------

def write_json(path: str, runs: Sequence[Mapping[Address, Result]], verdicts: Sequence[Verdict],
               method: Mapping[str, Any]) -> None:
    """Write all runs and verdicts; the path ``-`` stands for standard output."""
    found = libraries()
    text = json.dumps({
        "dlbridge": dlbridge.__version__,
        "machine": machine(),
        "libraries": {name: known for name, known in found.items() if known},
        "missing": [name for name, known in found.items() if not known],
        "method": dict(method),
        "runs": [[as_json(result) for result in run.values()] for run in runs],
        "goals": [{"group": verdict.address.group, "row": verdict.address.row, "label": verdict.label,
                   "goal": verdict.goal, "best": verdict.best, "met": verdict.met, "reason": verdict.reason}
                  for verdict in verdicts],
    }, indent=1)
    if path == "-":
        print(text)
    else:
        Path(path).write_text(text + "\n", encoding="utf-8")


def as_json(result: Result) -> dict[str, Any]:
    """Describe one row of one run."""
    return {
        "group": result.address.group,
        "row": result.address.row,
        "unit": result.unit,
        "dlbridge": figure_as_json(result.ours),
        "natives": {label: figure_as_json(figure) for label, figure in result.natives.items()},
        "floor": figure_as_json(result.floor),
        "missing": dict(result.missing),
    }


def figure_as_json(figure: Figure | None) -> dict[str, Any] | None:
    """Describe a figure; an infinite ratio becomes null, because JSON has no infinity."""
    if figure is None:
        return None
    return {name: None if cell == math.inf else cell for name, cell in figure._asdict().items()}
