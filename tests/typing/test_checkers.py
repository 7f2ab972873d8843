"""What mypy and pyright accept and refuse, and whether the stubs agree with the package: pytest tests/typing.

This needs the extra for linting, and takes too long to be one of the other tests.
"""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from support.tools import load_tool

import dlbridge.typing
from dlbridge.libraries.library import libraries

USES = Path(__file__).parent
ROOT = USES.parents[1]
ALLOWLIST = USES / "allowlist.txt"
PAGE = ROOT / "docs" / "jobs" / "typing.md"


def run_module(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a module of Python against the dlbridge that these tests import, in place or installed."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def run_mypy(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_module("mypy", "--strict", "--config-file=", "--cache-dir=cache", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder, so that mypy finds the package as any user's mypy does; the cache in it serves every run."""
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture(scope="module")
def messages(workplace: Path) -> dict[str, list[str]]:
    """What mypy says about the uses, by file; one run, because reading torch's annotations takes most of it."""
    files = sorted({*USES.glob("*.py")} - {Path(__file__)})
    done = run_mypy("--hide-error-context", *map(str, files), cwd=workplace)
    assert (done.returncode, done.stderr) == (1, ""), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    return {file.name: [line for line in lines if Path(line.split(":")[0]).name == file.name] for file in files}


@pytest.mark.parametrize("name", sorted(file.name for file in USES.glob("right*.py")))
def test_right_uses(name: str, messages: dict[str, list[str]]) -> None:
    assert messages[name] == []


def test_wrong_uses(messages: dict[str, list[str]]) -> None:
    expected = {
        (number, line.rpartition("# E: ")[2].removesuffix(" (mypy alone)"))
        for number, line in enumerate((USES / "wrong.py").read_text().splitlines(), start=1)
        if "# E: " in line
    }
    found = {
        (int(number), code)
        for line in messages["wrong.py"]
        for number, code in re.findall(r"\.py:(\d+): error: .*\[([a-z-]+)\]$", line)
    }
    assert len(expected) > 40
    assert found == expected


@pytest.fixture(scope="module")
def page(workplace: Path) -> Path:
    """The examples of the page on types, as one file."""
    file = workplace / "page.py"
    file.write_text("\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)))
    return file


def wrong_lines(page: Path) -> list[int]:
    lines = [number for number, line in enumerate(page.read_text().splitlines(), 1) if line.endswith("# error")]
    assert len(lines) > 5
    return lines


def test_the_page_on_types(page: Path, workplace: Path) -> None:
    done = run_mypy("--hide-error-context", str(page), cwd=workplace)
    found = [int(number) for number in re.findall(r"page\.py:(\d+): error: ", done.stdout)]
    assert found == wrong_lines(page), done.stdout


def test_the_page_on_types_for_pyright(page: Path, workplace: Path) -> None:
    assert sorted(errors_by_pyright(workplace, page)["page.py"]) == wrong_lines(page)


@pytest.fixture(scope="module")
def errors_of_pyright(workplace: Path) -> dict[str, dict[int, str]]:
    """What pyright says of the uses, by file and line."""
    return errors_by_pyright(workplace, *sorted({*USES.glob("*.py")} - {Path(__file__)}))


def errors_by_pyright(workplace: Path, *files: Path) -> dict[str, dict[int, str]]:
    done = run_module("pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, files), cwd=workplace)
    found: dict[str, dict[int, str]] = {file.name: {} for file in files}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found[Path(each["file"]).name][each["range"]["start"]["line"] + 1] = each["message"]
    return found


@pytest.mark.parametrize("name", sorted(file.name for file in USES.glob("right*.py")))
def test_right_uses_for_pyright(name: str, errors_of_pyright: dict[str, dict[int, str]]) -> None:
    assert errors_of_pyright[name] == {}


def test_wrong_uses_for_pyright(errors_of_pyright: dict[str, dict[int, str]]) -> None:
    lines = (USES / "wrong.py").read_text().splitlines()
    expected = [number for number, line in enumerate(lines, start=1) if "# E: " in line and "(mypy alone)" not in line]
    assert [*errors_of_pyright["wrong.py"]] == expected


def test_the_names_that_editors_complete() -> None:
    ours = sorted(name for name, library in libraries().items() if library.delivery)      # packages may have more
    assert [*get_args(dlbridge.typing.Name)] == ours


def test_the_stubs_of_a_wheel_have_the_docstrings() -> None:
    tool = load_tool("stub_docstrings")
    found: dict[str, str | None] = {}
    for path in tool.STUBS:
        for node in ast.parse(tool.documented((ROOT / path).read_text())).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.setdefault(node.name, ast.get_docstring(node))
    for name in dlbridge.__all__:
        public = getattr(dlbridge, name)
        # These are Python, and have no stubs.
        if callable(public) and public.__module__.partition(".")[2] not in ("errors", "processes", "shards", "watch"):
            assert found.get(name) == inspect.getdoc(public), name


def test_stubs_are_strict(workplace: Path) -> None:
    """The stubs themselves, and the Python beside them."""
    done = run_mypy("-p", "dlbridge", cwd=workplace)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_agree_with_the_package(workplace: Path) -> None:
    # What torch.Tensor and jax.Array are in full does not matter here, and takes most of a minute to read.
    (workplace / "mypy.ini").write_text("[mypy]\n[mypy-torch.*,jax.*]\nfollow_imports = skip\n")
    done = run_module("mypy.stubtest", "dlbridge", "--mypy-config-file=mypy.ini", f"--allowlist={ALLOWLIST}",
                      cwd=workplace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"Success: no issues found in \d+ modules\n", done.stdout)
