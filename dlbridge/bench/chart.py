"""A chart of the ratios: for each comparison a dot where dlbridge stands, left of the line if it is the faster one."""

import importlib.util
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from dlbridge.bench.measure import Result
from dlbridge.bench.report import Goals, Mistake, number
from dlbridge.bench.rows import load

KINDS = (".png", ".svg")
BETTER, WORSE, FLOOR, GOAL = "#1f6fb4", "#d9730d", "#8a8a8a", "#1a7f37"
INCHES_PER_LINE = 0.22


def check(path: str) -> None:
    """Before anything is measured: whether a chart can be drawn into this file."""
    if Path(path).suffix not in KINDS:
        raise Mistake(f"--chart: {path}: is neither .png nor .svg (name the file so)")
    if importlib.util.find_spec("matplotlib") is None:
        raise Mistake("--chart: matplotlib is not installed (pip install 'dlbridge[bench]')")


def draw(path: str, results: Sequence[Result], goals: Goals) -> None:
    """Draw all comparisons, from the top in the order of the table."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    labels: list[str] = []
    titles: list[int] = []
    dots: list[tuple[int, float]] = []
    floors: list[tuple[int, float]] = []
    aims: list[tuple[int, float]] = []
    for group, some in groupby(results, key=lambda result: result.address.group):
        titles.append(len(labels))
        labels.append(load(group).GROUP.title)
        for result in some:
            for label, figure in result.natives.items():
                dots.append((len(labels), figure.ratio))
                if result.floor and label == next(iter(result.natives)):
                    floors.append((len(labels), result.floor.ratio))
                if label in goals.get(result.address, {}):
                    aims.append((len(labels), goals[result.address][label]))
                labels.append(f"{result.address.row}  beside  {label}")
    figure_of_all = Figure(figsize=(11, 1.5 + INCHES_PER_LINE * len(labels)), layout="constrained")
    FigureCanvasAgg(figure_of_all)
    axes = figure_of_all.add_subplot()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.hlines([line for line, _ in dots], 1, [at for _, at in dots], color="#cccccc", linewidth=1, zorder=1)
    marks = (
        ("dlbridge is faster", BETTER, "o", [dot for dot in dots if dot[1] <= 1]),
        ("dlbridge is slower", WORSE, "o", [dot for dot in dots if dot[1] > 1]),
        ("dlbridge / the C floor", FLOOR, "D", floors),
        ("the goal", GOAL, "|", aims),
    )
    for name, color, marker, points in marks:
        if points:
            axes.scatter([at for _, at in points], [line for line, _ in points], label=name, color=color,
                         marker=marker, s=90 if marker == "|" else 26, zorder=3 if marker == "|" else 2)
    for line, at in dots:
        axes.text(1.01, line, number(at), transform=axes.get_yaxis_transform(), fontsize=8,
                  color=BETTER if at <= 1 else WORSE, verticalalignment="center")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    for line in titles:
        axes.get_yticklabels()[line].set_fontweight("bold")
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("median of dlbridge / median of the other, in one run; left of 1 dlbridge is faster or holds less")
    axes.grid(axis="x", color="#eeeeee", zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure_of_all.legend(loc="outside upper left", ncols=4, frameon=False, fontsize=9)
    with rc_context({"svg.fonttype": "none"}):      # text as text, in a quarter of the bytes
        figure_of_all.savefig(path, dpi=120, facecolor="white")
