"""``dlbridge bench``: dlbridge beside each library's own converter, in one run on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlbridge.bench.measure import Address, Result
    from dlbridge.bench.rows import Row

__all__ = ["add_arguments", "run"]

QUICK_ROUNDS, QUICK_CALLS = 40, 10_000
# A neighbour on the machine can spoil a whole run, so a row that misses a goal gets this many further ones.
FURTHER_RUNS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options of ``dlbridge bench``."""
    parser.add_argument("--group", action="append", metavar="NAME", help="only this group (may be repeated)")
    parser.add_argument("--list", action="store_true", help="list the groups and their statements")
    parser.add_argument("--rounds", type=positive, default=400, metavar="N", help="rounds (%(default)s)")
    parser.add_argument("--calls", type=positive, default=1_000_000, metavar="N",
                        help="calls of each path in the search for leaks (%(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds and {QUICK_CALLS} calls")
    parser.add_argument("--large", action="store_true", help="copy 1 GiB even where that much memory is not available")
    parser.add_argument("--json", metavar="FILE", help="write every figure of every run ('-' for standard output)")
    parser.add_argument("--check", metavar="FILE",
                        help="exit with 1 if a row falls short of the goals in this file; such a row is measured "
                             f"{FURTHER_RUNS} more times, and its best run counts")
    parser.add_argument("--chart", metavar="FILE", help="draw the ratios (.png or .svg)")


def positive(text: str) -> int:
    """An option's number."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and check; 0 if every goal is met, 1 if one is not, 2 where something asked for cannot be."""
    from dlbridge.bench.report import Mistake
    from dlbridge.bench.rows import Missing

    try:
        return bench(arguments)
    except (Mistake, Missing) as mistake:
        print(f"dlbridge bench: {mistake}", file=sys.stderr)
        return 2


def chosen_groups(wanted: list[str] | None) -> list[str]:
    """The groups asked for, all of them by default."""
    from dlbridge.bench.report import Mistake
    from dlbridge.bench.rows import group_names

    known = group_names()
    for name in wanted or ():
        if name not in known:
            raise Mistake(f"--group: {name}: there is no such group (one of: {', '.join(known)})")
    return [name for name in known if not wanted or name in wanted]


def all_rows(groups: list[str]) -> dict[Address, Row]:
    """The rows of these groups, by group and name."""
    from dlbridge.bench.measure import Address
    from dlbridge.bench.rows import load

    return {Address(name, row.name): row for name in groups for row in load(name).GROUP.rows}


def list_groups(groups: list[str]) -> None:
    """Each group with its rows and their statements."""
    from dlbridge.bench.rows import load, statements

    for name in groups:
        print(f"{name}: {load(name).GROUP.title}")
        for row in load(name).GROUP.rows:
            print(f"    {row.name}")
            for statement in statements(row.ours, *row.natives.values()):
                print(f"        {statement}")


def check_writable(path: str) -> None:
    """Before anything is measured: whether its outcome will have a place."""
    from dlbridge.bench.report import Mistake

    if path == "-":
        return
    folder = Path(path).absolute().parent
    if Path(path).is_dir() or not os.access(folder, os.W_OK):
        raise Mistake(f"{path}: no file can be written there")


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, where rich is installed; no thread of its own, which would disturb what is measured."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.completed}/{task.total}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("")
        shown = 0.0

        def tick(done: int, total: int) -> None:
            nonlocal shown
            if time.monotonic() - shown > 0.2 or done == total:
                shown = time.monotonic()
                bar.update(task, completed=done, total=total, refresh=True)

        yield tick


def bench(arguments: argparse.Namespace) -> int:
    """All of it, once the options are known to be right."""
    from dlbridge.bench import chart, measure, report
    from dlbridge.bench.floors import build_floors
    from dlbridge.bench.rows import Settings

    groups = chosen_groups(arguments.group)
    if arguments.list:
        list_groups(groups)
        return 0
    goals = report.read_goals(arguments.check) if arguments.check else {}
    if arguments.group:
        goals = {address: labels for address, labels in goals.items() if address.group in groups}
    for path in filter(None, [arguments.json, arguments.chart]):
        check_writable(path)
    if arguments.chart:
        chart.check(arguments.chart)
    settings = Settings(arguments.rounds, arguments.calls, arguments.large)
    if arguments.quick:
        settings = Settings(QUICK_ROUNDS, QUICK_CALLS, arguments.large)
    out = sys.stderr if arguments.json == "-" else sys.stdout
    rows = all_rows(groups)
    floors = build_floors()
    print(report.header(floors.reason), file=out)
    runs: list[dict[Address, Result]] = []
    again = rows
    while again and len(runs) <= (FURTHER_RUNS if goals else 0):
        if runs:
            print(f"run {len(runs) + 1}: the rows that fell short ({len(again)}), which a neighbour may have disturbed",
                  file=out)
        with progress() as tick:
            runs.append(measure.run(again, settings, floors, tick))
        short = {verdict.address for verdict in report.judge(goals, runs) if not verdict.met}
        again = {address: row for address, row in rows.items() if address in short}
    verdicts = report.judge(goals, runs)
    best = report.best_results(goals, runs)
    report.print_table(best, goals, out)
    if arguments.json:
        report.write_json(arguments.json, runs, verdicts, {"rounds": settings.rounds, "calls": settings.calls})
    if arguments.chart:
        chart.draw(arguments.chart, best, goals)
    missed = [verdict for verdict in verdicts if not verdict.met]
    for verdict in missed:
        print(f"falls short: {verdict}", file=out)
    if arguments.check:
        print(f"{len(verdicts) - len(missed)} of {len(verdicts)} goals met", file=out)
    return 1 if missed else 0
