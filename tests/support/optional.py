"""Tests without all the libraries: those that need one that is absent are deselected, and counted.

``DLBRIDGE_TEST_LIBRARIES="jax,ml_dtypes"`` names what is there beside NumPy, pytest and hypothesis; it may be empty. It
may name all, for a torch that lacks what some tests need.
While the tests are collected the others import as placeholders. A test needs one of them if a placeholder, or its name,
is found in the test, its fixtures, the functions of the tests that these use, or its parameters; ``needs`` marks the
few tests where it cannot be found.
"""

import functools
import importlib.machinery
import inspect
import re
import sys
import types
from pathlib import Path

import numpy as np

HERE = str(Path(__file__).parents[1])
NEED_ALL = ("test_bench.py", "test_bench_floors.py", "gpu")       # import all that they compare
USABLE = types.FunctionType | functools.partial | str


class Placeholder(types.ModuleType):
    """Whatever is taken of it, called or inherited from is a placeholder again."""

    __path__ = ()
    __version__ = ""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")

    def __call__(self, *arguments, **keywords):
        return self

    __getitem__ = __mul__ = __call__

    def __mro_entries__(self, bases):
        return ()


class Absent:
    """The absent libraries, as a finder of placeholders and as the plugin of pytest that deselects."""

    def __init__(self, names):
        self.names = set(names)
        if np.lib.NumpyVersion(np.__version__) < "2.1.0":
            self.names.add("numpy 2.1")
        if sys.version_info < (3, 11):
            self.names.add("Python 3.11")
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            self.names.add("a GIL")
        if "ml_dtypes" not in self.names:
            import ml_dtypes

            self.names |= {"ml_dtypes 0.6"} if not hasattr(ml_dtypes, "complex32") else set()
        if "torch" not in self.names:
            import torch

            self.names |= {name for name, lacks in (
                ("torch 2.10", not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")),
                ("torch for CPUs", torch.version.cuda)) if lacks}
        self.words = re.compile(rf"\b({'|'.join(map(re.escape, sorted(self.names))) or '(?!)'})\b")
        self.functions = {}
        sys.meta_path.insert(0, self)

    # ---- imports while the tests are collected

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin="absent")

    def create_module(self, spec):
        return Placeholder(spec.name)

    def exec_module(self, module):
        pass

    def pytest_collection_finish(self):
        sys.meta_path.remove(self)
        for name in [name for name, module in sys.modules.items() if isinstance(module, Placeholder)]:
            del sys.modules[name]

    # ---- which tests are left

    def pytest_report_header(self):
        return f"left out: {', '.join(NEED_ALL)}; deselected: what needs {', '.join(sorted(self.names))}"

    def pytest_ignore_collect(self, collection_path):
        return True if collection_path.name in NEED_ALL else None

    def pytest_collection_modifyitems(self, config, items):
        needing = {item for item in items if self.is_needed_by(item)}
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]

    def is_needed_by(self, item):
        fixtures = [fixture.func for used in item._fixtureinfo.name2fixturedefs.values() for fixture in used]
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        marks = [mark.args for mark in item.iter_markers("needs")]
        return self.is_in((item.function, *fixtures, *parameters.values(), marks))

    def is_in(self, value):
        if isinstance(value, str):
            return self.words.search(value) is not None
        if isinstance(value, tuple | list | set | frozenset):
            return any(map(self.is_in, value))
        if isinstance(value, dict):
            return self.is_in((*value, *value.values()))
        if isinstance(value, functools.partial):
            return self.is_in((value.func, value.args, value.keywords))
        if isinstance(value, types.FunctionType):
            return self.is_in_function(value)
        return isinstance(value, Placeholder)

    def is_in_function(self, function):
        function = inspect.unwrap(function)
        if hasattr(function, "hypothesis"):
            function = function.hypothesis.inner_test
        if function not in self.functions:
            self.functions[function] = False        # it may call itself
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
            self.functions[function] = (
                function.__code__.co_filename.startswith(HERE)
                and (self.is_in(cells) or self.is_in_code(function.__code__, function)))
        return self.functions[function]

    def is_in_code(self, code, function):
        texts = [value for value in code.co_consts if isinstance(value, str | tuple) and value != function.__doc__]
        used = [value for name in code.co_names
                if isinstance(value := function.__globals__.get(name), USABLE | Placeholder)]
        inner = [value for value in code.co_consts if isinstance(value, types.CodeType)]
        return self.is_in((*texts, *code.co_names, *used)) or any(self.is_in_code(code, function) for code in inner)
