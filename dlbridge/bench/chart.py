"""A chart of the ratios: one line for each comparison, a dot for the native path and one for the floor."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlbridge.bench.measure import Address, Result
from dlbridge.bench.report import Goals, Mistake
from dlbridge.bench.rows import load

KINDS = (".png", ".svg")
OURS, FLOOR, GOAL = "#1f77b4", "#7f7f7f", "#d62728"


def check(path: str) -> None:
    """Before anything is measured: whether a chart can be drawn into this file."""
    if Path(path).suffix not in KINDS:
        raise Mistake(f"--chart: {path}: is neither .png nor .svg (name the file so)")
    if importlib.util.find_spec("matplotlib") is None:
        raise Mistake("--chart: matplotlib is not installed (pip install 'dlbridge[bench]')")


def draw(path: str, results: Sequence[Result], goals: Goals) -> None:
    """Draw what was compared, from the top in the order of the table."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = [(result, label, figure.ratio) for result in results for label, figure in result.natives.items()]
    figure = Figure(figsize=(10, 1.6 + 0.24 * len(lines)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
