"""Write the last run of each stage of tools/nightly.sh, which docs/reliability.tsv has, into docs/reliability.md."""

from __future__ import annotations

import pathlib
import subprocess

TOP = pathlib.Path(__file__).parents[1]
PAGE = TOP / "docs" / "reliability.md"
RECORD = TOP / "docs" / "reliability.tsv"
BEGIN, END = "<!-- begin: the last runs -->\n", "<!-- end: the last runs -->\n"
HEADINGS = "| stage | command | last run | commit | minutes | result |\n|---|---|---|---|---:|---|\n"


def row(stage: str, command: str, line: str) -> str:
    """A row of the table, of a stage that ran or not."""
    commit, date, seconds, result = line.split("\t")[1:] if line else ("", "", "", "not run yet")
    minutes = f"{int(seconds) / 60:.1f}" if seconds else ""
    return f"| {stage} | `{command}` | {date} | {commit} | {minutes} | {result.replace('|', '/')} |\n"


def page() -> str:
    """The whole page, with the table anew."""
    listed = subprocess.check_output(["bash", TOP / "tools" / "nightly.sh", "--list"], text=True)
    stages = [line.split(" ", 1) for line in listed.splitlines()]
    # Of several lines of a stage, the last counts.
    last = {line.partition("\t")[0]: line for line in RECORD.read_text().splitlines()}
    text = PAGE.read_text()
    start, rest = text.split(BEGIN)
    rows = "".join(row(stage, command, last.get(stage, "")) for stage, command in stages)
    return f"{start}{BEGIN}{HEADINGS}{rows}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page())
