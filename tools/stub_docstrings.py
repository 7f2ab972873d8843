"""Stubs with the docstrings of the sources, for the wheel, since editors show the stub of a module that was compiled.

setup.py calls this before anything is compiled, so the sources are read and not imported.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
STUBS = [Path("dlbridge", f"{name}.pyi") for name in ("__init__", "convert", "trees/__init__")]
Documented = ast.FunctionDef | ast.ClassDef


def public_sources() -> dict[str, Path]:
    """The file that defines each public name."""
    sources = {}
    for node in ast.parse((ROOT / "dlbridge" / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dlbridge."):
            path = ROOT.joinpath(*node.module.split("."))
            candidates = [path.with_suffix(".pyx"), path.with_suffix(".py"), path / "__init__.py"]
            file = next(file for file in candidates if file.exists())
            sources.update({alias.name: file for alias in node.names})
    return sources


def docstring_in(source: str, name: str, indent: str = "") -> str:
    """The docstring of a definition, or "". Cython has no parser for its own language, so the text is searched."""
    header = rf"^{indent}(?:cdef )?(?:class|def) {name}\b(?:.*[^:\n]\n)*.*:\n"       # to the first line that ends so
    found = re.search(rf'{header}{indent}    (r?"""[\s\S]*?""")$', source, re.MULTILINE)
    return inspect.cleandoc(ast.literal_eval(found[1])) if found else ""


def attributes(docstring: str) -> dict[str, str]:
    """What the section for attributes says, by name."""
    section = re.search(r"^Attributes\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^(\w[\w, ]*) : [^\n]*\n((?:    .*\n?)+)", section[1] if section else "", re.MULTILINE)
    return {name: inspect.cleandoc(text) for names, text in entries for name in names.split(", ")}


def docstrings(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    """The definitions of a stub that get a docstring; of overloads the first, which serves all."""
    sources = public_sources()
    done = set()
    for node in tree.body:
        if isinstance(node, Documented) and node.name in sources and node.name not in done:
            done.add(node.name)
            source = sources[node.name].read_text(encoding="utf-8")
            docstring = docstring_in(source, node.name)
            yield node, docstring
            entries = attributes(docstring) if isinstance(node, ast.ClassDef) else {}
            for method in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                    own = docstring_in(source, method.name, "    ") or entries.get(method.name)
                    if own:
                        yield method, own


def documented(stub: str) -> str:
    """The text of a stub with docstrings."""
    lines = stub.splitlines()
    for node, docstring in sorted(docstrings(ast.parse(stub)), key=lambda pair: -pair[0].lineno):
        first = node.body[0].lineno - 1
        indent = " " * (node.col_offset + 4)
        quotes = 'r"""' if "\\" in docstring else '"""'
        body = "\n".join(indent + line if line else "" for line in docstring.splitlines()).lstrip()
        if "\n" in body:
            body += f"\n{indent}"
        text = [*f'{indent}{quotes}{body}"""'.splitlines()]
        if isinstance(node, ast.FunctionDef):
            lines[first] = lines[first].removesuffix(" ...")
            lines[first + 1:first + 1] = text
        else:
            lines[first:first] = [*text, ""]
    return "\n".join(lines) + "\n"
