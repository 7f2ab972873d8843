"""Write docs/performance.md and its chart from a run: ``run.py --check goals.json --json FILE`` of benchmarks/."""

from __future__ import annotations

import json
import pathlib
import sys
from itertools import groupby
from typing import Any

TOP = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(TOP / "benchmarks"))

from bench.chart import draw  # noqa: E402
from bench.groups import load  # noqa: E402
from bench.measure import Address, Figure, Result  # noqa: E402
from bench.report import Goals, best_results, lines, read_goals  # noqa: E402

PAGE = TOP / "docs" / "performance.md"
CHART = TOP / "docs" / "performance.svg"
BEGIN, END = "<!-- begin: a run -->\n", "<!-- end: a run -->\n"
HEADINGS = """\
| | dlbridge | beside | its own | ratio | goal | floor | x floor |
|---|---:|---|---:|---:|---:|---:|---:|
"""


def read(row: dict[str, Any]) -> Result:
    """A row as the benchmark wrote it."""
    def figure(cells: dict[str, Any] | None) -> Figure | None:
        return Figure(**cells) if cells else None

    natives = {label: Figure(**cells) for label, cells in row["natives"].items() if cells}
    return Result(Address(row["group"], row["row"]), row["unit"], figure(row["dlbridge"]), natives,
                  figure(row["floor"]), row["missing"])


def tables(results: list[Result], goals: Goals) -> str:
    """A table for each group."""
    parts = []
    for group, rows in groupby(results, key=lambda result: result.address.group):
        parts += [f"### {load(group).GROUP.title}\n\n", HEADINGS]
        parts += [f"| {' | '.join(line)} |\n" for row in rows for line in lines(row, goals.get(row.address, {}))]
        parts.append("\n")
    return "".join(parts)


def where(run: dict[str, Any]) -> str:
    """The machine and the libraries, in a sentence."""
    machine = run["machine"]
    libraries = ", ".join(f"{name} {version}" for name, version in run["libraries"].items() if version)
    return (f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}, {machine['python']}; {libraries}; "
            f"{run['method']['rounds']} rounds.\n\n")


def main(path: str) -> None:
    """Put the run between the marks of the page."""
    run = json.loads(pathlib.Path(path).read_text())
    goals = read_goals(str(TOP / "benchmarks" / "goals.json"))
    runs = [{result.address: result for result in map(read, rows)} for rows in run["runs"]]
    results = best_results(goals, runs)
    draw(str(CHART), results, goals)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{where(run)}{tables(results, goals)}{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1])
