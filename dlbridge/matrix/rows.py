"""The libraries of the matrix: a row for each says how it makes an array, and how it reads the values of one."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import dlbridge
from dlbridge.libraries.library import libraries
from dlbridge.matrix.samples import HOST, SAMPLES, Sample

TABLE = "dlbridge.matrix.rows"          # the module with the rows, by the name that a child imports it by


class Row(NamedTuple):
    """A library by the name that ``convert(x, name)`` takes; it is a target if dlbridge has a target of that name."""

    name: str
    module: str                             # is imported, and is the first argument of the functions below
    distributions: tuple[str, ...]          # any of them will do, and pip installs the first; none for Python's own
    make: Callable[[Any, Any], Any]         # (module, ndarray) -> an array of the library, made by itself
    values: Callable[[Any, Any], Any]       # (module, array) -> an ndarray, made by the library itself
    devices: tuple[str, ...] = ("cpu", "cuda")     # the devices whose memory it can have
    once: bool = False                      # whether the first conversion uses an array up

    def load(self) -> Any:
        """Import the library."""
        return importlib.import_module(self.module)


# The order of the table; the other libraries follow by their names.
FIRST = ("numpy", "torch", "jax", "tensorflow", "paddle")


def row_of(name: str, sample: Sample) -> Row:
    """Make the row of a library."""
    return Row(name, libraries()[name].top, sample.distributions or (name,), sample.make, sample.values, sample.devices)


ROWS = (
    *sorted((row_of(name, sample) for name, sample in SAMPLES.items()),
            key=lambda row: (FIRST.index(row.name) if row.name in FIRST else len(FIRST), row.name)),
    Row("memoryview", "builtins", (),
        lambda python, array: memoryview(array), lambda python, view: np.asarray(view), HOST),
    Row("bytearray", "builtins", (),
        lambda python, array: bytearray(array), lambda python, buffer: np.frombuffer(buffer, "u1"), HOST),
    Row("dlpack", "builtins", (), lambda python, array: dlbridge.to_dlpack(array),
        lambda python, capsule: np.from_dlpack(dlbridge.asdlpack(capsule)), once=True),
    Row("dlbridge", "dlbridge", ("dlbridge",),
        lambda bridge, array: bridge.asdlpack(array), lambda bridge, tensor: np.asarray(tensor)),
)


def rows_of(table: str) -> dict[str, Row]:
    """Import a module with rows, and map the names of the libraries to them."""
    return {row.name: row for row in importlib.import_module(table).ROWS}


def is_installed(row: Row) -> bool:
    """Tell whether the library's module can be found; nothing is imported."""
    return importlib.util.find_spec(row.module.partition(".")[0]) is not None


def version_of(row: Row) -> str:
    """Read the version in the metadata of the distribution; it is empty where there is no distribution.

    That of the library's own name comes first: numba-cuda has versions of its own.
    """
    for name in (row.name, *row.distributions) if row.distributions else ():
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def sort_out(rows: Iterable[Row]) -> tuple[dict[str, Row], dict[str, str]]:
    """Map the installed libraries to their rows, and the others to what pip installs."""
    found: dict[str, Row] = {}
    missing: dict[str, str] = {}
    for row in rows:
        if is_installed(row):
            found[row.name] = row
        else:
            missing[row.name] = row.distributions[0]
    return found, missing
