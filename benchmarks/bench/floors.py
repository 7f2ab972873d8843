"""Builds and imports what dlbridge is measured beside, with the interpreter's own compiler and flags.

floors.c has the C floors of conversions; the folder views has ways in which an extension can look at its argument. The
extensions are put into the user's cache folder, under names that are hashes of all that they depend on.
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

HERE = Path(__file__).parents[1]
MACROS = ("-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION", "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION")


class FloorsError(Exception):
    """There are no floors; the text says why."""


def load(*, callgrind: bool = False) -> ModuleType:
    """Build and import the floors; ``callgrind`` adds functions that tell valgrind what to count."""
    try:
        return built("floors", [HERE / "floors.c"], ["-DWITH_CALLGRIND"] if callgrind else [])
    except (ImportError, AttributeError) as error:
        raise FloorsError(f"floors: torch: {error} (its C exchange API is needed, which torch 2.10 brought)") from error


def load_views() -> dict[str, ModuleType]:
    """Build and import the ways to look at an argument, by the name of what does it.

    nanobind and Cython are left out where they are not installed.
    """
    import dlbridge

    views = HERE / "views"
    include = Path(dlbridge.get_include())
    found = {"dlbridge": built("views", [views / "views.c"], [f"-I{include}"], [include / "dlbridge.h"])}
    if importlib.util.find_spec("nanobind"):
        import nanobind

        root = Path(nanobind.__file__).parent
        found["nanobind"] = built(
            "views_nanobind", [views / "views_nanobind.cpp", root / "src" / "nb_combined.cpp"],
            ["-std=c++17", "-O3", "-DNDEBUG", "-fvisibility=hidden", "-fno-strict-aliasing", f"-I{root / 'include'}",
             f"-I{root / 'ext' / 'robin_map' / 'include'}"])
    if importlib.util.find_spec("Cython"):
        found["Cython"] = built("views_cython", [translated(views / "views_cython.pyx")], [])
    return found


def translated(source: Path) -> Path:
    """The C file of a Cython source."""
    made = _cache() / f"{source.stem}.c"
    command = [sys.executable, "-m", "cython", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FloorsError(f"floors: Cython: failed with {done.returncode}:\n{done.stderr}")
    return made


def built(name: str, sources: list[Path], options: list[str], headers: list[Path] | None = None) -> ModuleType:
    """Build an extension module, if that was not done before, and import it."""
    try:
        texts = [source.read_bytes() for source in (*sources, *(headers or ()))]
    except OSError as error:
        raise FloorsError(
            f"floors: source {sources[0]}: cannot be read ({error.strerror}; run in a checkout)") from error
    command = _compiler(sources, [*MACROS, *options])
    parts = (*texts, *command, sys.version, sys.executable, numpy.__version__)
    key = hashlib.sha256(b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)).hexdigest()
    path = _cache() / f"{name}-{key[:20]}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not path.exists():
        _compile(command, path)
    return _import(name, path)


def build(report: Callable[[str], object] = print) -> ModuleType | None:
    """Build and import the floors; where that fails, report why and return None."""
    try:
        return load()
    except FloorsError as error:
        report(str(error))
        return None


def _compiler(sources: list[Path], options: list[str]) -> list[str]:
    """Write the command that setuptools would build an extension with."""
    def words(name: str) -> list[str]:
        return shlex.split(sysconfig.get_config_var(name) or "")

    compiler = "CXX" if sources[0].suffix == ".cpp" else "CC"
    return [
        *(shlex.split(os.environ[compiler]) if os.environ.get(compiler) else words(compiler)),
        *words("CFLAGS"), *shlex.split(os.environ.get("CFLAGS", "")), *words("CCSHARED"), *options,
        f"-I{sysconfig.get_path('include')}", f"-I{numpy.get_include()}",
        *words("LDSHARED")[1:], *map(str, sources),
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


def _import(name: str, path: Path) -> ModuleType:
    loader = ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
