"""A chart of the ratios: a bar for each comparison, shorter than the pale one behind it where dlbridge is faster.

It can be read on a phone, and its colours on light pages and on dark ones.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.groups import load
from bench.measure import Result
from bench.report import Mistake, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = (".png", ".svg")
BETTER, WORSE, INK = "#3d82d8", "#d9730d", "#747f8b"
INCHES, INCHES_PER_LINE = 4.6, 0.44
LONGEST = 1.25              # the ratio where a bar is cut; its number says how long it is


class Line(NamedTuple):
    """A comparison, or the title of those below it, which has no ratio."""

    label: str
    ratio: float | None = None


def check(path: str) -> None:
    """Check, before anything is measured, that a chart can be drawn into this file."""
    if Path(path).suffix not in KINDS:
        raise Mistake(f"--chart: {path}: is neither .png nor .svg (name the file so)")
    if importlib.util.find_spec("matplotlib") is None:
        raise Mistake("--chart: matplotlib is not installed (pip install 'dlbridge[bench]')")


def lines_of(results: Iterable[Result]) -> list[Line]:
    """A line for every comparison, below the title of its group."""
    lines = []
    for group, some in groupby(results, key=lambda result: result.address.group):
        lines.append(Line(load(group).GROUP.title))
        lines += [Line(f"{result.address.row}, beside {label}", figure.ratio)
                  for result in some for label, figure in result.natives.items()]
    return lines


def draw(path: str, lines: Sequence[Line]) -> None:
    """Draw the lines from the top."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES, INCHES_PER_LINE * (len(lines) + 0.8)))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, LONGEST), ylim=(len(lines) + 0.2, -0.6))
    axes.axis("off")
    axes.text(0, -0.2, "time of dlbridge, beside that of the other (pale)", color=INK, fontsize=9)
    for place, line in enumerate(lines):
        draw_line(axes, place + 0.6, line)
    with rc_context({"svg.fonttype": "none"}):      # text is written as text, in a quarter of the bytes
        figure.savefig(path, dpi=120, transparent=True)


def draw_line(axes: Axes, y: float, line: Line) -> None:
    """Draw a label, and the bar of its ratio below."""
    size = min(9, 560 / len(line.label))       # so that the longest ones end where the chart does
    axes.text(0, y - 0.06, line.label, color=INK, fontsize=size, weight="bold" if line.ratio is None else "normal")
    if line.ratio is None:
        return
    colour = BETTER if line.ratio <= 1 else WORSE
    axes.barh(y + 0.16, 1, height=0.22, color=INK, alpha=0.3)
    axes.barh(y + 0.16, min(line.ratio, LONGEST - 0.15), height=0.22, color=colour)
    axes.text(LONGEST, y + 0.24, number(line.ratio), color=colour, fontsize=10, weight="bold", ha="right")
