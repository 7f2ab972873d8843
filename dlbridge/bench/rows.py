"""What is measured: rows of statements, in groups, one file per group."""

import ast
import builtins
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

PACKAGE = "dlbridge.bench.groups"
# In a checkout that is not installed the groups lie beside the package.
BESIDE = Path(__file__).resolve().parents[2] / "benchmarks"

Names = dict[str, Any]
Sample = Callable[[], float]
# Makes what measures a statement once: (statement, its names, settings) -> a function that gives one figure.
Sampler = Callable[[str, Names, "Settings"], Sample]
Statements = str | tuple[str, ...]


class Missing(Exception):
    """Something that a statement needs is not on this machine; the text says what."""


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    rounds: int = 400
    calls: int = 1_000_000
    large: bool = False


@dataclass(frozen=True)
class Row:
    """A statement of dlbridge, and those that it is compared with in the same rounds.

    Where there are several, the slowest counts of ours and the fastest of a native's.

    Attributes
    ----------
    natives : mapping of str to statements
        By the label under which the goals know them.
    floor : str
        What C can do at the least; empty where nobody has written it.
    sampler : callable, optional
        What measures a statement; None times it in a loop.
    unit : str
        What the sampler's figures are; a goal of this name is for the figure itself instead of a ratio.
    share : float
        The part of all rounds that is enough, for statements that take long.
    pinned : bool
        Whether to stay on one CPU.
    memory : int
        Bytes that must be available, or the row is left out.
    """

    name: str
    ours: Statements
    natives: Mapping[str, Statements] = field(default_factory=dict)
    floor: str = ""
    sampler: Sampler | None = None
    unit: str = "ns"
    share: float = 1.0
    pinned: bool = True
    memory: int = 0


@dataclass(frozen=True)
class Group:
    """The rows of one file; ``inputs`` are expressions for the names that their statements use."""

    title: str
    rows: tuple[Row, ...]
    inputs: Mapping[str, str] = field(default_factory=dict)


class Library(NamedTuple):
    """A library by the name that statements use."""

    modules: tuple[str, ...]
    distribution: str


LIBRARIES = {
    "numpy": Library(("numpy",), "numpy"),
    "torch": Library(("torch",), "torch"),
    "jax": Library(("jax", "jax.dlpack", "jax.numpy"), "jax"),
    "ml_dtypes": Library(("ml_dtypes",), "ml_dtypes"),
    "pydlpack": Library(("dlpack",), "pydlpack"),
    "paddle": Library(("paddle",), "paddlepaddle"),
}

# The inputs that several groups have in common.
INPUTS = {
    "ndarray": "numpy.ones((3, 4), 'f4')",
    "aligned": "in_jax_memory(numpy, (3, 4), 'f4')",
    "tensor": "torch.ones(3, 4)",
    "jax_array": "jax.device_put(numpy.ones((3, 4), 'f4'), jax.devices('cpu')[0])",
    "buffer": "bytearray(48)",
    "bfloat16_ndarray": "numpy.ones((3, 4), ml_dtypes.bfloat16)",
    "bfloat16_tensor": "torch.ones(3, 4, dtype=torch.bfloat16)",
}


def in_jax_memory(numpy: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An ndarray at an address that JAX shares: a multiple of 64."""
    array = numpy.zeros(shape, dtype)
    raw = numpy.zeros(array.nbytes + 64, "u1")
    start = -raw.ctypes.data % 64
    return raw[start:start + array.nbytes].view(dtype).reshape(shape)


def import_library(name: str) -> ModuleType:
    """A library by the name that statements use, with the modules of it that they need."""
    # All memory here is the host's, so jax need not wake an accelerator.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        for module in LIBRARIES[name].modules:
            importlib.import_module(module)
        return sys.modules[LIBRARIES[name].modules[0]]
    except ImportError as error:
        raise Missing(f"{name} is not installed (pip install {LIBRARIES[name].distribution})") from error


class Inputs:
    """The names of one group's statements, each made when the first statement asks for it."""

    def __init__(self, group: Group, module: ModuleType, floors: ModuleType | None, without_floors: str) -> None:
        self.expressions = {**INPUTS, **group.inputs}
        self.module = module
        self.floors = floors
        self.without_floors = without_floors
        self.made: Names = {"in_jax_memory": in_jax_memory}

    def names(self, statement: str) -> Names:
        """Every name that a statement uses; Missing where one cannot be had."""
        return {name: self.make(name) for name in used_names(statement)}

    def make(self, name: str) -> Any:
        """One name: an input, something of the group's file, a library, or the floors."""
        if name not in self.made:
            self.made[name] = self.find(name)
        return self.made[name]

    def find(self, name: str) -> Any:
        if name in self.expressions:
            return eval(self.expressions[name], self.names(self.expressions[name]))
        if name in LIBRARIES:
            return import_library(name)
        if name == "floors":
            if self.floors is None:
                raise Missing(self.without_floors)
            return self.floors
        return importlib.import_module("dlbridge") if name == "dlbridge" else getattr(self.module, name)


def used_names(statement: str) -> list[str]:
    """The names that a statement needs from outside."""
    found = [node for node in ast.walk(ast.parse(statement)) if isinstance(node, ast.Name)]
    own = {node.id for node in found if isinstance(node.ctx, ast.Store)}
    return sorted({node.id for node in found} - own - set(dir(builtins)))


def groups_package() -> ModuleType:
    """The package of the groups: a part of an installation, or the folder beside the package in a checkout."""
    try:
        return importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        pass
    path = BESIDE / "__init__.py"
    spec = importlib.util.spec_from_file_location(PACKAGE, path, submodule_search_locations=[str(BESIDE)])
    if spec is None or spec.loader is None or not path.is_file():
        raise Missing("the groups of the benchmark were not installed with dlbridge (install it again)")
    package = sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


def group_names() -> list[str]:
    """The groups by the names of their files, in the order of the table."""
    return list(groups_package().GROUPS)


def load(name: str) -> ModuleType:
    """The file of one group."""
    groups_package()
    return importlib.import_module(f"{PACKAGE}.{name}")


def statements(*many: Statements) -> Iterable[str]:
    """All statements, each once."""
    listed = [(one,) if isinstance(one, str) else one for one in many]
    return dict.fromkeys(statement for some in listed for statement in some)


def version(name: str) -> str | None:
    """The version of a library, or None where it cannot be imported."""
    try:
        if importlib.util.find_spec(LIBRARIES[name].modules[0]) is None:
            return None
        return importlib.metadata.version(LIBRARIES[name].distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
