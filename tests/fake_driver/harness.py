"""Python code in a child process that finds the fake GPU driver, and no other, where a GPU's would be."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from support import children

SOURCE = Path(__file__).with_name("driver.c")
LIBRARIES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}
FLAGS = ("-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-pthread")


@functools.cache
def folder(platform: str | None) -> Path:
    """Where the library of `platform` is, built with the first use, gone with this process; None: an empty folder."""
    where = Path(tempfile.mkdtemp(prefix="fake_driver_"))
    atexit.register(shutil.rmtree, where, ignore_errors=True)
    if platform is not None:
        build(where, platform)
    return where


def build(where: str | Path, platform: str, *options: str) -> None:
    """Build the library of `platform` into a folder; with `-DSILENT` it keeps no log."""
    library = LIBRARIES[platform]
    Path(where).mkdir(exist_ok=True)
    flags = [*FLAGS, *options, f"-DHIP={int(platform == 'hip')}", f"-Wl,-soname,{library}"]
    command = [os.environ.get("CC", "cc"), *flags, SOURCE, "-o", Path(where, library), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(f"the fake driver does not build\n{built.stderr}")


def run(
    code: str, platform: str | None = "cuda", *, returns: int = 0, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """
    Run `code` in a child process, as support.children.run_script(); warnings are errors.

    `platform` is "cuda", "hip" or None for a machine without either.
    """
    return children.run_script(
        code, returns=returns, timeout=timeout, LD_LIBRARY_PATH=str(folder(platform)),
        FAKE_DRIVER=LIBRARIES.get(platform, ""), **environment)


# A decorator: the body of a test is the code that run() runs.
in_child = functools.partial(children.in_child, run=run)
