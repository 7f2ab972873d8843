"""Compiles what a test needs in C."""

import pathlib
import subprocess
import sysconfig

HERE = pathlib.Path(__file__).parent


def compiled(name, folder):
    """The shared library of a file of this folder."""
    library = folder / name.replace(".c", ".so")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run(
        [*compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-ftls-model=initial-exec",
         "-I", sysconfig.get_path("include"), "-o", library, HERE / name, "-lpthread"], check=True, timeout=100)
    return library
