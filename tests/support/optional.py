"""Tests without all the libraries: ``DLBRIDGE_TEST_LIBRARIES="jax,ml_dtypes"`` names those that are there.

NumPy, pytest and hypothesis always are; the list may be empty. ``DLBRIDGE_TEST_WITHOUT="plain memory"`` names
conditions that a tool does not meet. The mark ``needs`` of a module, a test or a parameter names the libraries and the
conditions that it cannot do without, and a test that needs an absent one is deselected and counted. The mark alone
decides: while the tests are collected an absent library imports as a placeholder, so that a file can import it at its
top, but a test that uses a placeholder fails. As a plugin (``pytest -p support.optional``) this works without conftest.
"""

import importlib
import importlib.machinery
import itertools
import os
import platform
import shutil
import sys
import sysconfig
import types

import numpy as np
import pytest

LIBRARIES = ("torch", "jax", "ml_dtypes", "pyarrow", "PIL", "cuda.core", "numba.cuda", "array_api_strict")
# Of some tests.
PROGRAMS = ("tensorflow", "paddle", "optree", "rich", "matplotlib", "wrapt", "cloudpickle", "dlpack", "tvm_ffi",
            "safetensors", "Cython", "scipy")
NAMES = frozenset(name.partition(".")[0] for name in LIBRARIES + PROGRAMS)
# What a test may need beside a library itself: the first word is the library, where there is one of that name.
CONDITIONS = {
    # These hold unless DLBRIDGE_TEST_WITHOUT says otherwise.
    "an installation": lambda: True,        # of dlbridge by pip, and not a built tree on the path
    # Without a sanitizer, whose red zones and freed memory that is held back make sizes, times and limits say nothing.
    "plain memory": lambda: True,
    # A sanitizer gives each thread a stack for signals, and may take it back while the process ends.
    "an end beside threads of C": lambda: True,
    "numpy 2.1": lambda: np.lib.NumpyVersion(np.__version__) >= "2.1.0",
    # np.dtype() hid what an attribute of its argument raises.
    "numpy 2.4": lambda: np.lib.NumpyVersion(np.__version__) >= "2.4.0",
    "Python 3.11": lambda: sys.version_info >= (3, 11),
    "a GIL": lambda: getattr(sys, "_is_gil_enabled", lambda: True)(),
    "glibc": lambda: platform.libc_ver()[0] == "glibc",     # whose threads have stacks as large as ulimit says
    # Free-threaded builds have none before 3.15.
    "a limited API": lambda: not sysconfig.get_config_var("Py_GIL_DISABLED"),
    # 3.13t makes types immortal once a second thread was started.
    "types that die": lambda: sys.version_info >= (3, 14) or not sysconfig.get_config_var("Py_GIL_DISABLED"),
    # In 3.13t a daemon thread that waits for a dictionary's lock at the end is given the lock, and stops with it: the
    # main thread, which clears that dictionary, then waits for ever (seen 3 times in 35 runs).
    "an end beside daemon threads": lambda: (
        sys.version_info >= (3, 14) or not sysconfig.get_config_var("Py_GIL_DISABLED")),
    "Java": lambda: shutil.which("java") is not None,
    # The one that the first page is about.
    "jax 0.10": lambda: importlib.import_module("jax").__version_info__ >= (0, 10),
    # JAX 0.12 makes arrays of float6, but neither computes with them nor exports them; docs/dtypes.md is older.
    "jax before 0.12": lambda: importlib.import_module("jax").__version_info__ < (0, 12),
    "ml_dtypes 0.6": lambda: hasattr(importlib.import_module("ml_dtypes"), "complex32"),
    "torch 2.10": lambda: hasattr(importlib.import_module("torch").Tensor, "__dlpack_c_exchange_api__"),
    "torch for CPUs": lambda: not importlib.import_module("torch").version.cuda,
}


FULL = False        # pytest --full

# ---- marks of parameters

def of(*libraries):
    """A decorator: the function, which is to be a parameter or in one, needs these libraries."""
    def mark(function):
        function.needs = libraries
        return function
    return mark


def needed_by(value):
    """What a parameter needs: a library that it is or whose name it is, or what its attribute ``needs`` says."""
    if type(value) is tuple:
        return tuple(dict.fromkeys(name for each in value for name in needed_by(each)))
    if isinstance(value, types.ModuleType):
        value = value.__name__.partition(".")[0]
    if isinstance(value, str):
        return (str(value),) if value in NAMES else ()
    return getattr(value, "needs", ())


def params(values):
    """Parameters, each with the mark of what it needs; a tuple is one of several parameters.

    Of a dictionary the keys are the ids.
    """
    if isinstance(values, dict):
        return [marked(value, id=key) for key, value in values.items()]
    return [value if isinstance(value, type(pytest.param())) else marked(value) for value in values]


def product(*tables):
    """Tuples with an element of each table.

    With ``pytest --full`` these are all; else as many as the longest table has, and each element is in one of them.
    """
    tables = [list(table) for table in tables]
    if FULL:
        return list(itertools.product(*tables))
    rows = []
    for index in range(max(map(len, tables))):
        shift, row = 0, []
        for table in tables:
            row.append(table[(index + shift) % len(table)])
            shift += index // len(table)        # one further with each turn, or two tables would meet in the same pairs
        rows.append(tuple(row))
    return rows


def marked(value, *needs, **options):
    """One parameter, or a tuple of several, with the mark of what it needs, and of these libraries."""
    needs = (*needed_by(value), *needs)
    values = value if type(value) is tuple else (value,)
    return pytest.param(*values, marks=pytest.mark.needs(*needs) if needs else (), **options)


# ---- absent libraries

class Placeholder(types.ModuleType):
    """Whatever is taken of it, called or inherited from is a placeholder again, until the tests are collected."""

    __path__ = ()
    __version__ = ""
    collected = False

    def __getattribute__(self, name):
        if Placeholder.collected and name != "__class__":
            library = super().__getattribute__("__name__")
            pytest.fail(f"{library} is absent, and the test has no mark that says it needs it")
        return super().__getattribute__(name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")

    def __call__(self, *arguments, **keywords):
        return Placeholder(self.__name__)

    __getitem__ = __mul__ = __call__

    def __mro_entries__(self, bases):
        return ()


def present_libraries():
    """The libraries that are there, by their names at the top; None where that is not said."""
    named = os.environ.get("DLBRIDGE_TEST_LIBRARIES")
    return None if named is None else {name.partition(".")[0] for name in named.split(",")} - {""}


def pytest_configure(config):
    """Of the plugin."""
    config.addinivalue_line("markers", "needs(name): a library or a condition; without it the test is left out")
    config.pluginmanager.register(Needs(present_libraries()))


class Needs:
    """The plugin of pytest that deselects what needs an absent library, and the finder of placeholders."""

    def __init__(self, present):
        """``present`` has the names of the libraries that are there; where it is None, nothing counts as absent."""
        self.absent = set(os.environ.get("DLBRIDGE_TEST_WITHOUT", "").split(",")) - {""}
        if unknown := self.absent - CONDITIONS.keys():
            raise pytest.UsageError(f"DLBRIDGE_TEST_WITHOUT: there is no such condition: {', '.join(sorted(unknown))}")
        if present is not None:
            self.absent |= NAMES - present
            self.absent |= {name for name, holds in CONDITIONS.items() if name.split()[0] in self.absent or not holds()}
            sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.absent:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin="absent")

    def create_module(self, spec):
        return Placeholder(spec.name)

    def exec_module(self, module):
        pass

    def pytest_report_header(self):
        return f"deselected: what needs {', '.join(sorted(self.absent))}" if self.absent else None

    def pytest_ignore_collect(self, collection_path):
        """Leave out tests/gpu, which finds out for itself what is there."""
        return True if self.absent & NAMES and collection_path.name == "gpu" else None

    def pytest_collection_modifyitems(self, config, items):
        needs = {item: {name for mark in item.iter_markers("needs") for name in mark.args} for item in items}
        unknown = set().union(*needs.values()) - NAMES - CONDITIONS.keys()
        if unknown:
            raise pytest.UsageError(f"needs: there is no such library or condition: {', '.join(sorted(unknown))}")
        config.hook.pytest_deselected(items=[item for item in items if needs[item] & self.absent])
        items[:] = [item for item in items if not needs[item] & self.absent]

    def pytest_collection_finish(self):
        Placeholder.collected = True
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        for name in [name for name, module in sys.modules.items() if isinstance(module, Placeholder)]:
            del sys.modules[name]
