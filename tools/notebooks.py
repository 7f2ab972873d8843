"""Run notebooks and write what they show into them: python tools/notebooks.py NOTEBOOK...; --check compares instead.

Addresses are written as 0x…. The cells with the tag "varies" show times, memory of the process, or what machine it is:
only the kinds of their outputs are compared, and so are pictures. A cell with the tag "ends:NAME" may raise an error of
that name, which ends the notebook where it does not find what it needs: from there on, what the file shows is kept, if
it is of the same code.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ADDRESS = re.compile(r"0x[0-9a-f]{5,}(, aligned to \d+ bytes?)?")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def main(words: list[str]) -> int:
    """Return 1 if a notebook shows something else than what is in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("notebooks", nargs="+", type=Path)
    arguments = parser.parse_args(words)
    return max([each(path, arguments.check) for path in arguments.notebooks])


def each(path: Path, check: bool) -> int:
    """Run a notebook; write it, or compare it with what is there."""
    before = nbformat.read(path, as_version=4)
    after = nbformat.read(path, as_version=4)
    for cell in after.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = NotebookClient(after, timeout=900, kernel_name="python3",
                            resources={"metadata": {"path": str(path.parent)}})
    try:
        client.execute()
    except CellExecutionError:
        ended = next((at for at, cell in enumerate(after.cells) if has_ended(cell)), None)
        if ended is None:
            raise
        if before.metadata.get("whole") != digest(before):
            raise ValueError(f"{path}: its outputs are of other code, and it ends at cell {ended} here") from None
        after.cells[ended:] = before.cells[ended:]
        print(f"{path}: ends at cell {ended} here")
    cleaned(after)
    for cell in before.cells:
        join_streams(cell.get("outputs", []))
    differing = [line for pair in zip(before.cells, after.cells, strict=True) for line in difference(*pair)]
    print(f"{path}: {'differs' if differing else 'the same'}", *differing, sep="\n", flush=True)
    if check:
        return 1 if differing else 0
    nbformat.write(after, path)
    return 0


def tags(cell: Any) -> list[str]:
    found: list[str] = cell.metadata.get("tags", [])
    return found


def has_ended(cell: Any) -> bool:
    return any(is_error(output) and f"ends:{output.ename}" in tags(cell) for output in cell.get("outputs", []))


def digest(notebook: Any) -> str:
    """Of the code of all cells."""
    return sha256("\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code").encode()).hexdigest()


def is_error(output: Any) -> bool:
    return bool(output.output_type == "error")


def cleaned(notebook: Any) -> None:
    """Leave out what differs from run to run."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    if any(tag.startswith("ends:") for cell in notebook.cells for tag in tags(cell)):
        notebook.metadata["whole"] = digest(notebook)       # which ran to its end, here or before
    for cell in notebook.cells:
        join_streams(cell.get("outputs", []))
        cell.metadata = {"tags": tags(cell)} if tags(cell) else {}
        for output in cell.get("outputs", []):
            output.pop("metadata", None)
            if not is_error(output) and output.output_type != "stream":
                output.metadata = {}
            output.update({key: masked(value) for key, value in output.items() if key in ("text", "data")})


def join_streams(outputs: list[Any]) -> None:
    """Make one of what arrived in parts."""
    for index in range(len(outputs) - 1, 0, -1):
        before, output = outputs[index - 1:index + 1]
        if output.output_type == "stream" and (before.output_type, before.get("name")) == ("stream", output.name):
            before.text += outputs.pop(index).text


def masked(value: Any) -> Any:
    """The same text without addresses; pictures are left as they are."""
    if isinstance(value, dict):
        return {kind: masked(text) if kind.startswith("text/") else text for kind, text in value.items()}
    return ADDRESS.sub("0x…", value)


def shown(cell: Any) -> list[str]:
    """What a cell shows, line by line."""
    lines = []
    for output in cell.get("outputs", []):
        data = output.get("data", {output.get("name", output.output_type): output.get("text", "")})
        for kind, text in sorted(data.items()):
            lines.append(kind)
            if "varies" not in tags(cell) and not kind.startswith("image/"):
                lines += str(text).splitlines()
    return lines


def difference(before: Any, after: Any) -> list[str]:
    return [line[:200] for line in difflib.unified_diff(shown(before), shown(after), lineterm="", n=0)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
