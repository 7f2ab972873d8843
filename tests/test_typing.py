"""The stubs: what mypy accepts and refuses of the public API, and whether they say what is there at run time."""

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dlbridge

PACKAGE = Path(dlbridge.__file__).parent
USES = Path(__file__).parent / "typing"
ALLOWLIST = USES / "allowlist.txt"
# mypy reads the stubs of what it imports, so these need the library that they are about.
NEEDS = {"right_torch.py": "torch", "right_jax.py": "jax"}


def run_module(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a module of Python against the dlbridge that these tests import, in place or installed."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def run_mypy(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_module("mypy", "--strict", "--config-file=", "--cache-dir=cache", *arguments, cwd=cwd)


def is_installed(library: str | None) -> bool:
    return library is None or importlib.util.find_spec(library) is not None


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder, so that mypy finds the package as any user's mypy does; the cache in it serves every run."""
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture(scope="module")
def messages(workplace: Path) -> dict[str, list[str]]:
    """What mypy says about the uses, by file; one run, because reading torch's annotations takes most of it."""
    files = [file for file in sorted(USES.glob("*.py")) if is_installed(NEEDS.get(file.name))]
    done = run_mypy("--hide-error-context", *map(str, files), cwd=workplace)
    assert (done.returncode, done.stderr) == (1, ""), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    return {file.name: [line for line in lines if Path(line.split(":")[0]).name == file.name] for file in files}


@pytest.mark.needs("mypy")
@pytest.mark.parametrize("name", sorted(file.name for file in USES.glob("right*.py")))
def test_right_uses(name: str, messages: dict[str, list[str]]) -> None:
    if name not in messages:
        pytest.skip(f"{NEEDS[name]} is not installed")
    assert messages[name] == []


@pytest.mark.needs("mypy")
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


@pytest.mark.needs("mypy")
def test_stubs_are_strict(workplace: Path) -> None:
    """The stubs themselves, and the Python beside them."""
    done = run_mypy("-p", "dlbridge", cwd=workplace)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("torch", "jax", "mypy")
def test_stubs_agree_with_the_package(workplace: Path) -> None:
    # What torch.Tensor and jax.Array are in full does not matter here, and takes most of a minute to read.
    (workplace / "mypy.ini").write_text("[mypy]\n[mypy-torch.*,jax.*]\nfollow_imports = skip\n")
    done = run_module("mypy.stubtest", "dlbridge", "--mypy-config-file=mypy.ini", f"--allowlist={ALLOWLIST}",
                      cwd=workplace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"Success: no issues found in \d+ modules\n", done.stdout)


def test_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def literals(stub: str, parameter: str) -> set[str]:
    """The strings that a stub spells as Literal for a parameter, over all overloads."""
    found = set()
    for argument in ast.walk(ast.parse((PACKAGE / stub).read_text())):
        if isinstance(argument, ast.arg) and argument.arg == parameter and argument.annotation is not None:
            found |= {
                node.value
                for node in ast.walk(argument.annotation)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    return found


def test_literals_name_what_is_there() -> None:
    # Not `import dlbridge._core.targets.target`: as an attribute of the package, `targets` is the function.
    holds = importlib.import_module("dlbridge._core.targets.target").HOLDS
    assert literals("convert.pyi", "to") <= set(dlbridge.targets())
    assert len(literals("convert.pyi", "to")) == 6
    assert literals("__init__.pyi", "holds") <= set(holds)
    assert len(literals("__init__.pyi", "holds")) == 4


@pytest.mark.parametrize("stub", sorted(PACKAGE.rglob("*.pyi")), ids=lambda stub: str(stub.relative_to(PACKAGE)))
def test_stubs_name_what_is_there(stub: Path) -> None:
    """Names that a stub imports to hand on, too: stubtest takes those for granted."""
    name = ".".join(stub.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    names = set()
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {each.asname for each in node.names if each.asname}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    public = {each for each in names if not each.startswith("_")}
    assert [each for each in sorted(public) if not hasattr(module, each)] == []
