"""Write the figures of the README, docs/performance.md and docs/benchmark.md, from a run of the benchmark.

``performance_page.py RUN`` keeps what ``benchmarks/run.py --json RUN`` wrote in benchmarks/results.jsonl, and draws the
chart; without RUN, the pages are written from what is kept. Tests compare them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

TOP = Path(__file__).parents[2]
sys.path.insert(0, str(TOP / "benchmarks"))

from bench.chart import Line, draw  # noqa: E402
from bench.groups import load  # noqa: E402
from bench.measure import Address, Figure, Result  # noqa: E402
from bench.report import Goals, amount, as_json, best_results, judge, lines, number, read_goals  # noqa: E402
from marks import coded, put  # noqa: E402

RESULTS = TOP / "benchmarks" / "results.jsonl"      # where it was measured, and then a row in each line
CHART = TOP / "docs" / "performance.svg"
GOALS = [TOP / "benchmarks" / name for name in ("goals.json", "goals_all.json")]
SHORT_HEADINGS = """\
| | dlbridge | beside | its own | ratio |
|---|---:|---|---:|---:|
"""
HEADINGS = """\
| | dlbridge | beside | its own | ratio | goal | floor | x floor |
|---|---:|---|---:|---:|---:|---:|---:|
"""


class Headline(NamedTuple):
    """A comparison that matters to most people, in their words."""

    words: str
    group: str
    row: str
    label: str
    other: str


HEADLINES = (
    Headline("an ndarray for torch", "numpy_torch", "ndarray -> torch", "torch.from_numpy", "`torch.from_numpy`"),
    Headline("a tensor for NumPy", "torch_numpy", "tensor -> numpy", "Tensor.numpy", "`tensor.numpy()`"),
    Headline("a JAX array for torch", "from_jax", "jax -> torch", "torch.from_dlpack", "`torch.from_dlpack`"),
    Headline("a tensor for JAX", "to_jax", "tensor -> jax", "jax.dlpack.from_dlpack", "`jax.dlpack.from_dlpack`"),
    Headline("a JAX array for NumPy", "from_jax", "jax -> numpy", "numpy.asarray", "`numpy.asarray`"),
    Headline("a bytearray for torch", "buffers", "bytearray -> torch", "torch.frombuffer", "`torch.frombuffer`"),
    Headline("a bfloat16 tensor for NumPy", "dtypes", "bfloat16 tensor -> numpy", "int16 views", "views as int16"),
    Headline("an ndarray for any library", "wrap", "asdlpack", "pydlpack", "pydlpack's `asdlpack`"),
    Headline("64 ndarrays in a dictionary for torch", "batches", "64 ndarrays -> torch", "torch.utils._pytree",
             "`tree_map` of `from_dlpack`"),
    Headline("a table of polars for torch", "tables", "polars.DataFrame -> torch", "DataFrame.to_torch",
             "`frame.to_torch(\"dict\")`"),
    Headline("a flipped image for torch", "everyday", "image of 3 bands of uint8, flipped -> torch", "copy",
             "`from_numpy(image.copy())`"),
)
README = HEADLINES[:4]
TASKS = ("everyday", "columns", "tables", "batches", "small", "gradients")        # groups that people feel


# ---- the results -----------------------------------------------------------------------------------------------------

def goals() -> Goals:
    return {address: labels for path in GOALS for address, labels in read_goals(str(path)).items()}


def keep(path: str) -> None:
    """Keep where a run was measured, and of each row its best figures. Groups that it has not stay as they are."""
    run = json.loads(Path(path).read_text(encoding="utf-8"))
    rows = best_results(goals(), [{row.address: row for row in map(read, rows)} for rows in run["runs"]])
    where = {key: run[key] for key in ("machine", "libraries", "method")}
    measured = {row.address.group for row in rows}
    rows = [*(row for row in kept()[1] if row.address.group not in measured), *rows]
    RESULTS.write_text("".join(f"{json.dumps(line)}\n" for line in (where, *map(as_json, rows))), encoding="utf-8")


def read(row: dict[str, Any]) -> Result:
    """A row as the benchmark wrote it."""
    def figure(cells: dict[str, Any] | None) -> Figure | None:
        return Figure(**cells) if cells else None

    natives = {label: Figure(**cells) for label, cells in row["natives"].items() if cells}
    return Result(Address(row["group"], row["row"]), row["unit"], figure(row["dlbridge"]), natives,
                  figure(row["floor"]), row["missing"])


def kept() -> tuple[dict[str, Any], list[Result]]:
    where, *rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return where, [read(row) for row in rows]


# ---- the pages -------------------------------------------------------------------------------------------------------

def pages() -> Iterator[tuple[Path, str]]:
    """The pages with the figures that are kept."""
    where, results = kept()
    by_address = {result.address: result for result in results}

    def figures(headline: Headline) -> tuple[Result, Figure]:
        result = by_address[Address(headline.group, headline.row)]
        return result, result.natives[headline.label]

    def row(headline: Headline) -> str:
        result, other = figures(headline)
        return (f"| {headline.words} | {amount(result.ours, 'ns')} | {headline.other} | {amount(other, 'ns')} | "
                f"{number(other.ratio)} |\n")

    def row_of_code(headline: Headline) -> str:
        result, other = figures(headline)
        assert result.ours is not None
        return (f"| `{result.ours.statement.removeprefix('dlbridge.')}` | {result.ours.median:.0f} | "
                f"`{other.statement}` | {other.median:.0f} | {number(other.ratio)} |\n")

    parts = {
        "README.md": {
            "figures": "| dlbridge | ns | the library's own | ns | ratio |\n|---|---:|---|---:|---:|\n"
                       + "".join(map(row_of_code, README)),
            "machine": fill(f"The arrays are `(3, 4)` float32, and the times are medians that include destroying the "
                            f"result ({place(where, 'numpy', 'torch', 'jax')}). [docs/performance.md]"
                            f"(docs/performance.md) has what takes more time too, and [docs/benchmark.md]"
                            f"(docs/benchmark.md) all results and the method.", 120) + "\n"},
        "docs/performance.md": {
            "headlines": f"{SHORT_HEADINGS}{''.join(map(row, HEADLINES))}",
            "tasks": tables([each for group in TASKS for each in results if each.address.group == group])},
        "docs/benchmark.md": {
            "run": f"{place(where, *where['libraries'])}; {where['method']['rounds']} rounds.\n\n{missed(by_address)}\n"
                   f"{tables(results, goals())}"},
    }
    for name, texts in parts.items():
        page = (TOP / name).read_text(encoding="utf-8")
        for mark, text in texts.items():
            page = put(page, mark, text)
        yield TOP / name, page


def missed(by_address: dict[Address, Result]) -> str:
    """How many goals are met, and which are not."""
    verdicts = judge(goals(), [by_address])
    short = [f"- {coded(str(verdict))}\n" for verdict in verdicts if not verdict.met]
    met = f"{len(verdicts) - len(short)} of {len(verdicts)} goals are met"
    return f"{met}, all but\n\n{''.join(short)}" if short else f"{met}.\n"


def tables(results: list[Result], goals: Goals | None = None) -> str:
    """A table for each group, with goals and floors if they are given."""
    parts = []
    for group, rows in groupby(results, key=lambda result: result.address.group):
        parts += [f"### {load(group).GROUP.title}\n\n", SHORT_HEADINGS if goals is None else HEADINGS]
        cells = [line for row in rows for line in lines(row, (goals or {}).get(row.address, {}))]
        written = "".join(f"| {' | '.join(line[:5] if goals is None else line)} |\n" for line in cells)
        parts.append(re.sub(r"(__\w+__)", r"`\1`", written))      # which Markdown would take for a word in bold
        parts.append("\n")
    return "".join(parts)


def place(where: dict[str, Any], *names: str) -> str:
    """The machine and the libraries."""
    machine = where["machine"]
    libraries = ", ".join(f"{name} {where['libraries'][name].replace('+cpu', ' for the CPU')}" for name in names)
    return f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}, {machine['python']}, {libraries}"


def chart() -> None:
    by_address = {result.address: result for result in kept()[1]}
    draw(str(CHART), [Line(f"{headline.words}, beside {headline.other}".replace("`", ""),
                           by_address[Address(headline.group, headline.row)].natives[headline.label].ratio)
                      for headline in HEADLINES])


def main(words: list[str]) -> None:
    if words:
        keep(words[0])
        chart()
    for path, page in pages():
        path.write_text(page, encoding="utf-8")
