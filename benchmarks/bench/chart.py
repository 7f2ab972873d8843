"""A chart of the ratios: each comparison has a dot, which is left of the line if dlbridge is faster."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from bench.groups import load
from bench.measure import Result
from bench.report import Goals, Mistake, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = (".png", ".svg")
BETTER, WORSE, FLOOR, GOAL = "#1f6fb4", "#d9730d", "#8a8a8a", "#1a7f37"
INCHES_PER_LINE = 0.22

Point = tuple[int, float]       # the number of a line, counted from the top, and a ratio


@dataclass
class Lines:
    """The lines of the chart: a label each, and what is drawn beside it."""

    labels: list[str] = field(default_factory=list)
    titles: list[int] = field(default_factory=list)         # the lines that are the titles of groups
    ratios: list[Point] = field(default_factory=list)
    floors: list[Point] = field(default_factory=list)
    goals: list[Point] = field(default_factory=list)


def check(path: str) -> None:
    """Check, before anything is measured, that a chart can be drawn into this file."""
    if Path(path).suffix not in KINDS:
        raise Mistake(f"--chart: {path}: is neither .png nor .svg (name the file so)")
    if importlib.util.find_spec("matplotlib") is None:
        raise Mistake("--chart: matplotlib is not installed (pip install 'dlbridge[bench]')")


def draw(path: str, results: Sequence[Result], goals: Goals) -> None:
    """Draw all comparisons, from the top in the order of the table."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = lines_of(results, goals)
    figure = Figure(figsize=(11, 1.5 + INCHES_PER_LINE * len(lines.labels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xscale("log")
    draw_points(axes, lines)
    write_ratios(axes, lines)
    label_lines(axes, lines)
    set_scale(axes)
    figure.legend(loc="outside upper left", ncols=4, frameon=False, fontsize=9)
    with rc_context({"svg.fonttype": "none"}):      # text is written as text, in a quarter of the bytes
        figure.savefig(path, dpi=120, facecolor="white")


def lines_of(results: Sequence[Result], goals: Goals) -> Lines:
    """Put every comparison on a line of its own, below the title of its group."""
    lines = Lines()
    for group, some in groupby(results, key=lambda result: result.address.group):
        lines.titles.append(len(lines.labels))
        lines.labels.append(load(group).GROUP.title)
        for result in some:
            add_comparisons(lines, result, goals.get(result.address, {}))
    return lines


def add_comparisons(lines: Lines, result: Result, goals: dict[str, float]) -> None:
    """Add the lines of one row, one for each native; the first of them has the floor as well."""
    for label, figure in result.natives.items():
        line = len(lines.labels)
        lines.ratios.append((line, figure.ratio))
        if result.floor and label == next(iter(result.natives)):
            lines.floors.append((line, result.floor.ratio))
        if label in goals:
            lines.goals.append((line, goals[label]))
        lines.labels.append(f"{result.address.row}  beside  {label}")


def draw_points(axes: Axes, lines: Lines) -> None:
    """Draw the line at 1, a stroke from it to each ratio, and the marks of ratios, floors and goals."""
    axes.axvline(1, color="black", linewidth=1)
    axes.hlines([line for line, _ in lines.ratios], 1, [ratio for _, ratio in lines.ratios], color="#cccccc",
                linewidth=1, zorder=1)
    marks = (
        ("dlbridge is faster", BETTER, "o", [point for point in lines.ratios if point[1] <= 1]),
        ("dlbridge is slower", WORSE, "o", [point for point in lines.ratios if point[1] > 1]),
        ("dlbridge / the C floor", FLOOR, "D", lines.floors),
        ("the goal", GOAL, "|", lines.goals),
    )
    for name, color, marker, points in marks:
        if points:
            axes.scatter([ratio for _, ratio in points], [line for line, _ in points], label=name, color=color,
                         marker=marker, s=90 if marker == "|" else 26, zorder=3 if marker == "|" else 2)


def write_ratios(axes: Axes, lines: Lines) -> None:
    """Write each ratio as a number at the right end of its line."""
    for line, ratio in lines.ratios:
        axes.text(1.01, line, number(ratio), transform=axes.get_yaxis_transform(), fontsize=8,
                  color=BETTER if ratio <= 1 else WORSE, verticalalignment="center")


def label_lines(axes: Axes, lines: Lines) -> None:
    """Write the label of each line at its left end, titles in bold."""
    axes.set_yticks(range(len(lines.labels)), lines.labels, fontsize=8)
    for line in lines.titles:
        axes.get_yticklabels()[line].set_fontweight("bold")
    axes.set_ylim(len(lines.labels) - 0.4, -0.6)


def set_scale(axes: Axes) -> None:
    """Label the axis of the ratios, and hide the frame."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.margins(x=0.08)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("median of dlbridge / median of the other, in one run; left of 1 dlbridge is faster or holds less")
    axes.grid(axis="x", color="#eeeeee", zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
