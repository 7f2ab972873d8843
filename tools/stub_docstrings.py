"""Copy the docstrings of what is public into the stubs, where editors look for them: python tools/stub_docstrings.py.

An editor shows the stub of a module that was compiled, and Python's inspection shows the module itself. The docstrings
are written in the sources; tests/typing compares the stubs with them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import dlbridge

STUBS = [Path(__file__).parents[1] / "dlbridge" / f"{name}.pyi" for name in
         ("__init__", "convert", "face", "pointer", "trees/__init__")]
Documented = ast.FunctionDef | ast.ClassDef


def attributes(docstring: str) -> dict[str, str]:
    """What the section for attributes says, by name."""
    section = re.search(r"^Attributes\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^(\w[\w, ]*) : [^\n]*\n((?:    .*\n?)+)", section[1] if section else "", re.MULTILINE)
    return {name: inspect.cleandoc(text) for names, text in entries for name in names.split(", ")}


def docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    """The definitions of a stub that get a docstring; of overloads the first, which serves all."""
    done = set()
    for node in tree.body:
        if isinstance(node, Documented) and node.name in dlbridge.__all__ and node.name not in done:
            done.add(node.name)
            described = getattr(dlbridge, node.name)
            docstring = inspect.getdoc(described) or ""
            yield node, docstring
            entries = attributes(docstring) if isinstance(node, ast.ClassDef) else {}
            for method in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("__"):
                    own = inspect.getdoc(getattr(described, method.name)) or entries.get(method.name)
                    if own:
                        yield method, own


def documented(stub: str) -> str:
    """The text of a stub with the docstrings of today."""
    lines = stub.splitlines()
    for node, docstring in sorted(docstrings(ast.parse(stub)), key=lambda pair: -pair[0].lineno):
        first = node.body[0]
        indent = " " * (node.col_offset + 4)
        quotes = 'r"""' if "\\" in docstring else '"""'
        body = "\n".join(indent + line if line else "" for line in docstring.splitlines()).lstrip()
        if "\n" in body:
            body += f"\n{indent}"
        text = f'{indent}{quotes}{body}"""'
        if ast.get_docstring(node) is not None:
            lines[first.lineno - 1:first.end_lineno] = text.splitlines()
        elif isinstance(node, ast.FunctionDef):
            lines[first.lineno - 1] = lines[first.lineno - 1].removesuffix(" ...")
            lines[first.lineno:first.lineno] = text.splitlines()
        else:
            lines[first.lineno - 1:first.lineno - 1] = [*text.splitlines(), ""]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in STUBS:
        path.write_text(documented(path.read_text()))
