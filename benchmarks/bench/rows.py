"""What is measured: groups of rows, each of which compares a statement of dlbridge with those of others."""

import ast
import builtins
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

Names = dict[str, Any]
Sample = Callable[[], float]
# A function (statement, its names, settings) that makes a Sample, which measures the statement once.
Sampler = Callable[[str, Names, "Settings"], Sample]
Statements = str | tuple[str, ...]


class Missing(Exception):
    """The machine lacks something that a statement needs; the text says what."""


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    rounds: int = 400
    calls: int = 1_000_000
    large: bool = False


@dataclass(frozen=True)
class Row:
    """A statement of dlbridge, and the statements that it is compared with in the same rounds.

    Where there are several statements, the slowest one of dlbridge counts, and the fastest one of a native.

    Attributes
    ----------
    natives : mapping of str to statements
        The statements of other libraries, each under the label that it has in the goals.
    floor : str
        The statement of the C floor; empty where there is none.
    sampler : callable, optional
        Makes what measures a statement; None stands for a timed loop.
    unit : str
        The unit of the sampler's figures; a goal with this label is for the figure itself instead of a ratio.
    share : float
        The part of all rounds that the row takes part in: less than 1 for statements that take long.
    pinned : bool
        Whether the process stays on one CPU.
    memory : int
        Bytes that must be available; where they are not, the row is left out.
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
    """A library that statements use."""

    modules: tuple[str, ...]
    distribution: str


# By the names that statements use.
LIBRARIES = {
    "numpy": Library(("numpy",), "numpy"),
    "torch": Library(("torch",), "torch"),
    "jax": Library(("jax", "jax.dlpack", "jax.numpy"), "jax"),
    "ml_dtypes": Library(("ml_dtypes",), "ml_dtypes"),
    "pydlpack": Library(("dlpack",), "pydlpack"),
    "paddle": Library(("paddle",), "paddlepaddle"),
    "pandas": Library(("pandas",), "pandas"),
    "polars": Library(("polars",), "polars"),
    "pyarrow": Library(("pyarrow",), "pyarrow"),
    "ctranslate2": Library(("ctranslate2",), "ctranslate2"),
    "onnxruntime": Library(("onnxruntime",), "onnxruntime"),
    "numkong": Library(("numkong",), "numkong"),
    "mlx": Library(("mlx", "mlx.core"), "mlx"),
    "skia": Library(("skia",), "skia-python"),
    "pint": Library(("pint",), "pint"),
    "nanoarrow": Library(("nanoarrow",), "nanoarrow"),
    "arro3": Library(("arro3", "arro3.core"), "arro3-core"),
    "scipy": Library(("scipy", "scipy.sparse"), "scipy"),
    "awkward": Library(("awkward",), "awkward"),
    "zmq": Library(("zmq",), "pyzmq"),
}

# The inputs that several groups use: a name, and the expression that makes it.
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
    """Make an ndarray at an address that JAX shares: a multiple of 64."""
    array = numpy.zeros(shape, dtype)
    raw = numpy.zeros(array.nbytes + 64, "u1")
    start = -raw.ctypes.data % 64
    return raw[start:start + array.nbytes].view(dtype).reshape(shape)


def import_library(name: str) -> ModuleType:
    """Import a library with the modules that statements need."""
    # All memory here is the host's, so jax is kept from starting an accelerator.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        for module in LIBRARIES[name].modules:
            importlib.import_module(module)
        return sys.modules[LIBRARIES[name].modules[0]]
    except ImportError as error:
        raise Missing(f"{name} is not installed (pip install {LIBRARIES[name].distribution})") from error


class Inputs:
    """The names of one group's statements; each is made for the first statement that uses it."""

    def __init__(self, group: Group, module: ModuleType, floors: ModuleType | None, without_floors: str) -> None:
        self.expressions = {**INPUTS, **group.inputs}
        self.module = module
        self.floors = floors
        self.without_floors = without_floors
        self.made: Names = {"in_jax_memory": in_jax_memory}

    def names(self, statement: str) -> Names:
        """Make every name that a statement uses; raise Missing where that is impossible."""
        return {name: self.make(name) for name in used_names(statement)}

    def make(self, name: str) -> Any:
        """Make one name, or give it if it is made."""
        if name not in self.made:
            self.made[name] = self.find(name)
        return self.made[name]

    def find(self, name: str) -> Any:
        """Find an input, a library, the floors, dlbridge, or something of the group's file, in this order."""
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
    """List the names that a statement uses and does not assign."""
    found = [node for node in ast.walk(ast.parse(statement)) if isinstance(node, ast.Name)]
    own = {node.id for node in found if isinstance(node.ctx, ast.Store)}
    return sorted({node.id for node in found} - own - set(dir(builtins)))


def statements(*many: Statements) -> Iterable[str]:
    """List all statements, each once."""
    listed = [(one,) if isinstance(one, str) else one for one in many]
    return dict.fromkeys(statement for some in listed for statement in some)


def version(name: str) -> str | None:
    """Read the version of a library, or None where it is not installed."""
    try:
        if importlib.util.find_spec(LIBRARIES[name].modules[0]) is None:
            return None
        return importlib.metadata.version(LIBRARIES[name].distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
