"""Python code in a child process that finds the fake GPU driver, and no other, where a GPU's would be."""

import ast
import atexit
import functools
import inspect
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SOURCE = Path(__file__).with_name("driver.c")
LIBRARIES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}
FLAGS = ("-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-pthread")


@functools.cache
def folder(driver: str | None) -> Path:
    """Where the library of `driver` is, built with the first use and gone with this process; None: an empty folder."""
    where = Path(tempfile.mkdtemp(prefix="fake_driver_"))
    atexit.register(shutil.rmtree, where, ignore_errors=True)
    if driver is not None:
        build(where, driver)
    return where


def build(where: str | Path, driver: str, *options: str) -> None:
    """Build the library of `driver` into a folder; with `-DSILENT` it keeps no log."""
    library = LIBRARIES[driver]
    Path(where).mkdir(exist_ok=True)
    flags = [*FLAGS, *options, f"-DHIP={int(driver == 'hip')}", f"-Wl,-soname,{library}"]
    command = [os.environ.get("CC", "cc"), *flags, SOURCE, "-o", Path(where, library), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(f"the fake driver does not build\n{built.stderr}")


def run(
    code: str, driver: str | None = "cuda", *, returns: int = 0, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """
    Run `code` in a child process, which must end with `returns` (a negative number is a signal's); warnings are errors.

    `driver` is "cuda", "hip" or None for a machine without either; `environment` is added to this process's.
    """
    variables = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder(driver)),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE.parents[1]), os.environ.get("PYTHONPATH")])),
        "PYTHONFAULTHANDLER": "1",
        "FAKE_DRIVER": LIBRARIES.get(driver, ""),
        **environment,
    }
    with tempfile.TemporaryDirectory(prefix="fake_driver_") as where:
        script = Path(where, "child.py")        # a file, so that a traceback shows the line
        script.write_text(textwrap.dedent(code), encoding="utf-8")
        command = [sys.executable, "-W", "error", script]
        child = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout)
    if child.returncode != returns:
        raise AssertionError(f"the child {_ending(child.returncode)}\n{child.stdout}\n{child.stderr}")
    return child


def in_child(test=None, *, says=None, **options):
    """
    A decorator: the body of a test is the code that run() runs, as a module of its own; ``options`` are run()'s.

    Parameters of the test are variables of the module, and ``platform`` is the driver too; those in capital letters
    are in the environment. ``says`` is all that the child writes.
    """
    if test is None:
        return functools.partial(in_child, says=says, **options)
    code = body_of(test)

    @functools.wraps(test)
    def child(**given):
        given_first = "".join(f"{name} = {value!r}; " for name, value in given.items())
        environment = {name: value for name, value in given.items() if name.isupper()}
        ended = run(given_first + code, **{"driver": given.get("platform", "cuda"), **options, **environment})
        assert says is None or (ended.stdout, ended.stderr) == (says, "")

    return child


def body_of(test):
    """The lines of a function's body, after so many empty ones that a traceback names the lines of its file."""
    lines, first = inspect.getsourcelines(test)
    function, = ast.parse(textwrap.dedent("".join(lines))).body
    body = function.body[ast.get_docstring(function) is not None:]
    begin, end = body[0].lineno - 1, body[-1].end_lineno
    return "\n" * (first + begin - 1) + textwrap.dedent("".join(lines[begin:end]))


def _ending(returncode: int) -> str:
    return f"died of {signal.Signals(-returncode).name}" if returncode < 0 else f"returned {returncode}"
