"""The libraries of the matrix: a row for each says how it makes an array, and how it reads the values of one."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import dlbridge
from dlbridge.libraries.library import libraries
from dlbridge.libraries.litert import read as read_litert

HOST = ("cpu",)
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


def row(
    name: str, make: Callable[[Any, Any], Any], values: Callable[[Any, Any], Any],
    devices: tuple[str, ...] = ("cpu", "cuda"), distributions: tuple[str, ...] = (),
) -> Row:
    """Make the row of a library that dlbridge has a file of."""
    library = libraries()[name]
    return Row(name, library.top, distributions or (library.install or name,), make, values, devices)


# In the order of the table.
ROWS = (
    row("numpy", lambda numpy, array: array, lambda numpy, array: array, HOST),
    row("torch", lambda torch, array: torch.tensor(array), lambda torch, tensor: tensor.numpy(force=True)),
    row("jax", lambda jax, array: jax.numpy.array(array), lambda jax, array: np.asarray(array)),
    row("tensorflow", lambda tensorflow, array: tensorflow.constant(array),
        lambda tensorflow, tensor: tensor.numpy(), distributions=("tensorflow", "tensorflow-cpu")),
    row("paddle", lambda paddle, array: paddle.to_tensor(array),
        lambda paddle, tensor: tensor.numpy(), distributions=("paddlepaddle", "paddlepaddle-gpu")),
    row("array_api_strict", lambda namespace, array: namespace.asarray(array),
        lambda namespace, array: np.from_dlpack(array), HOST),
    row("awkward", lambda awkward, array: awkward.Array(array), lambda awkward, array: awkward.to_numpy(array), HOST),
    row("cupy", lambda cupy, array: cupy.asarray(array),
        lambda cupy, array: array.get(), ("cuda",), distributions=("cupy-cuda12x", "cupy-cuda13x", "cupy")),
    row("dpnp", lambda dpnp, array: dpnp.asarray(array), lambda dpnp, array: dpnp.asnumpy(array), ("oneapi",)),
    row("litert", lambda module, array: module.TensorBuffer.create_from_host_memory(array.ravel()),
        lambda module, buffer: read_litert(buffer), HOST),
    row("mindspore", lambda mindspore, array: mindspore.Tensor(array),
        lambda mindspore, tensor: tensor.asnumpy(), HOST),
    row("mlx", lambda mlx, array: mlx.array(array), lambda mlx, array: np.array(array)),
    row("numba", lambda cuda, array: cuda.to_device(array),
        lambda cuda, array: array.copy_to_host(), ("cuda",), distributions=("numba-cuda",)),
    row("onnxruntime", lambda onnxruntime, array: onnxruntime.OrtValue.ortvalue_from_numpy(array),
        lambda onnxruntime, value: value.numpy(), distributions=("onnxruntime", "onnxruntime-gpu")),
    row("openvino", lambda openvino, array: openvino.Tensor(array), lambda openvino, tensor: tensor.data, HOST),
    row("pandas", lambda pandas, array: pandas.Series(array.ravel()), lambda pandas, series: series.to_numpy(), HOST),
    row("pillow", lambda image, array: image.fromarray(array), lambda image, picture: np.asarray(picture), HOST),
    row("polars", lambda polars, array: polars.Series(array.ravel()), lambda polars, series: series.to_numpy(), HOST),
    row("pyarrow", lambda pyarrow, array: pyarrow.array(array.ravel()), lambda pyarrow, array: array.to_numpy()),
    row("tinygrad", lambda tinygrad, array: tinygrad.Tensor(array).realize(),
        lambda tinygrad, tensor: tensor.numpy(), HOST),
    row("tvm_ffi", lambda tvm_ffi, array: tvm_ffi.from_dlpack(array), lambda tvm_ffi, tensor: np.from_dlpack(tensor)),
    row("warp", lambda warp, array: warp.array(array, device="cpu"), lambda warp, array: array.numpy()),
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
