"""The command ``python benchmarks/run.py``."""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from bench import chart, floors, measure, report
from bench.groups import GROUPS, load
from bench.measure import Address, Floors, Result
from bench.report import Goals, Mistake, Verdict
from bench.rows import Row, Settings, statements

QUICK_ROUNDS, QUICK_CALLS = 40, 10_000
# Other processes on the machine can spoil a whole run, so a row that misses a goal is measured this many more times.
FURTHER_RUNS = 4


# ---- options ---------------------------------------------------------------------------------------------------------

def parser() -> argparse.ArgumentParser:
    """Describe the options."""
    made = argparse.ArgumentParser(
        prog="run.py",
        description="Measure dlbridge beside each library's own converter on this machine.",
        epilog="The exit status is 0, or 1 if --check finds a row that falls short.")
    made.add_argument("--group", action="append", metavar="NAME", help="only this group (may be repeated)")
    made.add_argument("--list", action="store_true", help="list the groups and their statements")
    made.add_argument("--rounds", type=positive, default=400, metavar="N", help="rounds (%(default)s)")
    made.add_argument("--calls", type=positive, default=1_000_000, metavar="N",
                        help="calls of each path in the search for leaks (%(default)s)")
    made.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds and {QUICK_CALLS} calls")
    made.add_argument("--large", action="store_true", help="copy 1 GiB even where that much memory is not available")
    made.add_argument("--json", metavar="FILE", help="write every figure of every run ('-' for standard output)")
    made.add_argument("--check", action="append", metavar="FILE",
                      help="exit with 1 if a row falls short of the goals in this file (may be repeated); such a row "
                           f"is measured {FURTHER_RUNS} more times, and its best run counts")
    made.add_argument("--chart", metavar="FILE", help="draw the ratios (.png or .svg)")
    return made


def positive(text: str) -> int:
    """Parse an option's number."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def chosen_groups(wanted: Sequence[str] | None) -> list[str]:
    """List the groups that are asked for, or all groups where none is."""
    for name in wanted or ():
        if name not in GROUPS:
            raise Mistake(f"--group: {name}: there is no such group (one of: {', '.join(GROUPS)})")
    return [name for name in GROUPS if not wanted or name in wanted]


def chosen_goals(paths: Sequence[str] | None, groups: Sequence[str] | None) -> Goals:
    """Read the goals, if any, and leave out those of groups that are not asked for."""
    return {address: labels for path in paths or () for address, labels in report.read_goals(path).items()
            if not groups or address.group in groups}


def chosen_settings(arguments: argparse.Namespace) -> Settings:
    """Say how much is measured."""
    if arguments.quick:
        return Settings(QUICK_ROUNDS, QUICK_CALLS, arguments.large)
    return Settings(arguments.rounds, arguments.calls, arguments.large)


def check_outputs(json: str | None, drawing: str | None) -> None:
    """Check, before anything is measured, that JSON and chart can be written."""
    for path in (json, drawing):
        if path and path != "-" and (Path(path).is_dir() or not os.access(Path(path).absolute().parent, os.W_OK)):
            raise Mistake(f"{path}: no file can be written there")
    if drawing:
        chart.check(drawing)


# ---- the command -----------------------------------------------------------------------------------------------------

def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if every goal is met, 1 if one is not, and 2 for a wrong command line."""
    try:
        return bench(parser().parse_args(words))
    except Mistake as mistake:
        print(f"run.py: {mistake}", file=sys.stderr)
        return 2


def build_floors() -> Floors:
    """Build and import the C floors, or say why there are none."""
    reasons: list[str] = []
    module = floors.build(reasons.append)
    return Floors(module, "" if module else " ".join(" ".join(reasons).split()))


def bench(arguments: argparse.Namespace) -> int:
    """Measure, print and check."""
    groups = chosen_groups(arguments.group)
    if arguments.list:
        list_groups(groups)
        return 0
    goals = chosen_goals(arguments.check, arguments.group)
    check_outputs(arguments.json, arguments.chart)
    settings = chosen_settings(arguments)
    out = sys.stderr if arguments.json == "-" else sys.stdout
    beside = build_floors()
    print(report.header(beside.reason), file=out)
    runs = measure_all(rows_of(groups), goals, settings, beside, out)
    verdicts = report.judge(goals, runs)
    best = report.best_results(goals, runs)
    report.print_table(best, goals, out)
    if arguments.json:
        report.write_json(arguments.json, runs, verdicts, {"rounds": settings.rounds, "calls": settings.calls})
    if arguments.chart:
        chart.draw(arguments.chart, chart.lines_of(best))
    missed = print_missed(verdicts, out)
    if arguments.check:
        print(f"{len(verdicts) - missed} of {len(verdicts)} goals met", file=out)
    return 1 if missed else 0


def list_groups(groups: Sequence[str]) -> None:
    """Print each group with its rows and their statements."""
    for name in groups:
        print(f"{name}: {load(name).GROUP.title}")
        for row in load(name).GROUP.rows:
            print(f"    {row.name}")
            for statement in statements(row.ours, *row.natives.values()):
                print(f"        {statement}")


def rows_of(groups: Sequence[str]) -> dict[Address, Row]:
    """Map the addresses of all rows of these groups to the rows."""
    return {Address(name, row.name): row for name in groups for row in load(name).GROUP.rows}


def measure_all(
    rows: Mapping[Address, Row], goals: Goals, settings: Settings, beside: Floors, out: TextIO,
) -> list[dict[Address, Result]]:
    """Measure all rows once, and those that fall short of a goal up to `FURTHER_RUNS` more times."""
    runs: list[dict[Address, Result]] = []
    again = rows
    while again and len(runs) <= (FURTHER_RUNS if goals else 0):
        if runs:
            print(f"run {len(runs) + 1}: the rows that fell short ({len(again)}), which a neighbour may have disturbed",
                  file=out)
        with progress() as tick:
            runs.append(measure.run(again, settings, beside, tick))
        short = {verdict.address for verdict in report.judge(goals, runs) if not verdict.met}
        again = {address: row for address, row in rows.items() if address in short}
    return runs


def print_missed(verdicts: Sequence[Verdict], out: TextIO) -> int:
    """Print the goals that are not met, and return how many they are."""
    missed = [verdict for verdict in verdicts if not verdict.met]
    for verdict in missed:
        print(f"falls short: {verdict}", file=out)
    return len(missed)


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal if rich is installed; it has no thread, which would disturb the measurement."""
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
