"""Builds and imports floors.c, the C floors, with the interpreter's own compiler and flags.

The extension is put into the user's cache folder, under a name that is a hash of all that it depends on.
"""

import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import numpy

SOURCE = Path(__file__).with_name("floors.c")
MACROS = ("-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION", "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION")


class FloorsError(Exception):
    """There are no floors; the text says why."""


def load(*, callgrind: bool = False) -> ModuleType:
    """Build and import the floors; ``callgrind`` adds functions that tell valgrind what to count."""
    try:
        source = SOURCE.read_bytes()
    except OSError as error:
        raise FloorsError(f"floors: source {SOURCE}: cannot be read ({error.strerror}; run in a checkout)") from error
    options = [*MACROS, *(["-DWITH_CALLGRIND"] if callgrind else [])]
    command = _compiler(options)
    parts = (source, *command, sys.version, sys.executable, numpy.__version__)
    key = hashlib.sha256(b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)).hexdigest()
    path = _cache() / f"floors-{key[:20]}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not path.exists():
        _compile(command, path)
    return _import(path)


def build(report: Callable[[str], object] = print) -> ModuleType | None:
    """Build and import the floors; where that fails, report why and return None."""
    try:
        return load()
    except FloorsError as error:
        report(str(error))
        return None


def _compiler(options: list[str]) -> list[str]:
    """Write the command that setuptools would build an extension with."""
    def words(name: str) -> list[str]:
        return shlex.split(sysconfig.get_config_var(name) or "")

    return [
        *(shlex.split(os.environ["CC"]) if os.environ.get("CC") else words("CC")),
        *words("CFLAGS"), *shlex.split(os.environ.get("CFLAGS", "")), *words("CCSHARED"), *options,
        f"-I{sysconfig.get_path('include')}", f"-I{numpy.get_include()}",
        *words("LDSHARED")[1:], str(SOURCE),
    ]


def _cache() -> Path:
    """Find a folder that only this user writes to."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "dlbridge")
    for folder in (home, Path(tempfile.gettempdir(), f"dlbridge-{os.getuid()}")):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
            return folder
    raise FloorsError(f"floors: cache {home}: cannot be written (set XDG_CACHE_HOME)")


def _compile(command: list[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder, path.name)
        try:
            done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, check=False)
        except OSError as error:
            raise FloorsError(f"floors: compiler {command[0]}: does not run ({error.strerror}; install one)") from error
        if done.returncode:
            raise FloorsError(f"floors: compiler {command[0]}: failed with {done.returncode}:\n{done.stderr}")
        os.replace(made, path)          # another process may be building the same


def _import(path: Path) -> ModuleType:
    loader = ExtensionFileLoader("floors", str(path))
    try:
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("floors", loader))
        loader.exec_module(module)
    except (ImportError, AttributeError) as error:
        raise FloorsError(f"floors: torch: {error} (its C exchange API is needed, which torch 2.10 brought)") from error
    return module
