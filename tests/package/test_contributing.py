"""CONTRIBUTING.md names each file that a new library, dtype or flag has to be written into."""

import re
from pathlib import Path

import pytest

from dlbridge.libraries.library import files

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BULLETS = re.findall(r"^- \*\*A new (\w+).*?\*\*, as `(\w+)`(.*?)(?=^- |^$)", TEXT, re.MULTILINE | re.DOTALL)
SOURCES = sorted(path for pattern in ("dlbridge/**/*.p*", "dlbridge/**/*.h", "tools/pages/*.py", "README.md",
                                      "pyproject.toml", "constraints.txt") for path in ROOT.glob(pattern)
                 if path.suffix in (".py", ".pyx", ".pxd", ".pyi", ".h", ".md", ".toml", ".txt"))


def is_of_another_library(path: Path, word: str) -> bool:
    return path.parent.name == "libraries" and path.stem in files() and path.stem != word


@pytest.mark.parametrize(("kind", "word", "text"), BULLETS, ids=[kind for kind, *_ in BULLETS])
def test_a_list_has_each_file(kind: str, word: str, text: str) -> None:
    listed = {name for name in re.findall(r"`([\w./]+)`", text) if "." in name}
    naming = re.compile(rf"(?:\b|kDL|_){word}\b", re.IGNORECASE)
    found = {str(path.relative_to(ROOT)) for path in SOURCES
             if naming.search(path.read_text("utf-8")) and not is_of_another_library(path, word)}
    assert {name for name in listed if not name.startswith("tests/")} == found
    assert {name for name in listed if not naming.search((ROOT / name).read_text("utf-8"))} == set()


def test_there_are_three_lists() -> None:
    assert [kind for kind, *_ in BULLETS] == ["library", "dtype", "flag"]
