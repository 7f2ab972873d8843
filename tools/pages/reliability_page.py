"""Write the last run of each stage of tools/nightly.sh, which docs/reliability.tsv has, into docs/reliability.md."""

from __future__ import annotations

import pathlib
import re
import subprocess

from marks import put

TOP = pathlib.Path(__file__).parents[2]
PAGE = TOP / "docs" / "reliability.md"
RECORD = TOP / "docs" / "reliability.tsv"
HEADINGS = "| stage | command | last run | commit | minutes | result |\n|---|---|---|---|---:|---|\n"
CELLS = ("| system | processor | how | Python | NumPy | torch | JAX | last run | result |\n"
         "|---|---|---|---|---|---|---|---|---|\n")
# By the end of a stage's name; other stages run on the machine that they are started on.
PLATFORMS = {
    "manylinux_x86_64": "| Linux, glibc | x86-64 | run |",
    "manylinux_aarch64": "| Linux, glibc | aarch64 | emulated |",
    "musllinux_x86_64": "| Linux, musl | x86-64 | run |",
    "macosx_arm64": "| macOS | arm64 | compiled only |",
    "win_amd64": "| Windows | x86-64 | compiled only |",
    "": "| Linux, glibc | x86-64 | run |",
}


def row(stage: str, command: str, line: str) -> str:
    """A row of the table, of a stage that ran or not."""
    commit, date, seconds, result = line.split("\t")[1:] if line else ("", "", "", "not run yet")
    minutes = f"{int(seconds) / 60:.1f}" if seconds else ""
    return f"| {stage} | `{command}` | {date} | {commit} | {minutes} | {result.replace('|', '/')} |\n"


def cells(stage: str, line: str) -> str:
    """A row for each set of versions that the line of a stage is about."""
    date, result = line.split("\t")[2], line.split("\t")[4]
    platform = next(text for ending, text in PLATFORMS.items() if stage.endswith(ending))
    found = re.findall(r"(FAILED )?(Python [^:;]+, numpy [^:;]+): (?:tests: )?([^;]+)", result)
    return "".join(f"{platform} {in_columns(versions)} | {date} | {'failed' if failed else tests} |\n"
                   for failed, versions, tests in found)


def in_columns(versions: str) -> str:
    """What tools/common.sh writes as ``Python 3.12.1, numpy 2.4.6``, as the cells of a row."""
    found = dict(each.split(" ") for each in versions.split(", "))
    return " | ".join(found.get(name, "") for name in ("Python", "numpy", "torch", "jax"))


def page() -> str:
    """The whole page, with the tables anew."""
    listed = subprocess.check_output(["bash", TOP / "tools" / "nightly.sh", "--list"], text=True)
    stages = [line.split(" ", 1) for line in listed.splitlines()]
    # Of several lines of a stage, the last counts.
    last = {line.partition("\t")[0]: line for line in RECORD.read_text().splitlines()}
    runs = "".join(row(stage, command, last.get(stage, "")) for stage, command in stages)
    tested = "".join(cells(stage, last[stage]) for stage, _ in stages if stage in last)
    text = put(PAGE.read_text(), "the last runs", HEADINGS + runs)
    return put(text, "where it runs", CELLS + tested)


def main(words: list[str]) -> None:
    PAGE.write_text(page())
