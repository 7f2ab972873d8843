"""What the installed package carries."""

import ast
import inspect
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

import dlbridge

pytestmark = [
    pytest.mark.needs("an installation"),
    pytest.mark.skipif("""'"editable": true' in (distribution("dlbridge").read_text("direct_url.json") or "")""",
                       reason="an editable installation has no files of its own")]
SOURCE = Path(__file__).parents[2] / "dlbridge"
FRAMEWORKS = {"torch", "jax", "jaxlib", "ml_dtypes", "cupy", "tensorflow", "pyarrow", "PIL"}


@pytest.fixture(scope="module")
def installed():
    """Paths of the installed distribution's files, relative to site-packages."""
    return {path.as_posix() for path in distribution("dlbridge").files}


def test_the_tests_run_on_the_installed_package():
    assert Path(dlbridge.__file__).parent == distribution("dlbridge").locate_file("dlbridge")


def test_version_is_that_of_the_metadata():
    assert dlbridge.__version__ == distribution("dlbridge").version


@pytest.mark.parametrize("pattern", ["*.py", "*.pyi", "py.typed", "photograph.*", "page.html", "table.html"])
def test_the_sources_that_users_need_are_installed(installed, pattern):
    wanted = {path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob(pattern)}
    assert wanted
    assert wanted <= installed


def test_the_stubs_that_editors_show_have_the_docstrings():
    stub = ast.parse(Path(dlbridge.__file__).with_name("convert.pyi").read_text())
    documented = {node.name: ast.get_docstring(node) for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert documented["to_dlpack"] == inspect.getdoc(dlbridge.to_dlpack)


def test_of_cython_and_c_only_the_face_is_installed(installed):
    assert {path for path in installed if path.endswith((".pxd", ".pyx", ".h", ".c"))} == {
        "dlbridge/__init__.pxd", "dlbridge/include/dlbridge.h"}


def test_every_extension_module_is_installed(installed):
    built = {path.partition(".")[0] for path in installed if path.endswith(".so")}
    assert built == {path.with_suffix("").relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*.pyx")}


def test_nothing_else_is_installed(installed):
    kinds = {Path(path).suffix for path in installed if path.startswith("dlbridge/")}
    assert kinds <= {".py", ".pyi", ".pxd", ".h", ".so", ".typed", ".ppm", ".txt", ".html", ".pyc"}


def test_the_licences_are_installed(installed):
    names = {Path(path).name for path in installed if ".dist-info/licenses/" in path}
    assert names == {"LICENSE"}


@pytest.mark.parametrize("machine", ["sys.maxsize = 2**31 - 1", "sys.byteorder = 'big'"])
def test_a_build_for_another_kind_of_machine_stops_at_once(machine):
    setup = SOURCE.parent / "setup.py"
    code = f"import runpy, sys; {machine}; runpy.run_path({str(setup)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "dlbridge is for 64-bit little-endian machines\n")


@pytest.mark.parametrize("module", [
    "dlbridge", "dlbridge.demo", "dlbridge.testing", "dlbridge.matrix.info", "dlbridge.matrix.page",
    "dlbridge.__main__",
])
def test_importing_imports_no_framework(module):
    code = f"import sys, {module}; print(*sorted({FRAMEWORKS!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
