"""Compiles what a test needs in C."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sysconfig

import dlbridge

HERE = pathlib.Path(__file__).parent


def compile_flags():
    """The compiler, with the folders of Python.h and dlbridge.h; each warning is an error."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    return [*compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-ftls-model=initial-exec",
            "-I", sysconfig.get_path("include"), "-I", dlbridge.get_include()]


def compiled(name, folder, *options, source=None):
    """The shared library of a file of this folder, or of one that was generated."""
    library = folder / name.replace(".c", ".so")
    objects = [option for option in options if option.endswith(".o")]
    others = [option for option in options if option not in objects]
    # A folder among the options is searched before dlbridge's own.
    compiler, *flags = compile_flags()
    subprocess.run(
        [compiler, *others, *flags, "-shared", "-fPIC", source or HERE / name, "-x", "none", *objects, "-o", library,
         "-lpthread"], check=True, timeout=100)
    return library


def compiled_extension(name, folder, *options, source=None):
    """The module of a file of this folder that uses dlbridge.h, or of one that was generated."""
    library = compiled(f"{name}.c", folder, *options, source=source)
    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module
