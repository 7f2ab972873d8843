"""What mypy accepts and refuses of the public API, and whether the stubs agree with the package: pytest tests/typing.

This needs the extra for linting, and takes too long to be one of the other tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

USES = Path(__file__).parent
ALLOWLIST = USES / "allowlist.txt"


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
        (number, line.rpartition("# E: ")[2])
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
