"""The libraries of the matrix: a row for each says how it makes an array, and how it reads the values of one."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import dlbridge

TABLE = "dlbridge.matrix.rows"          # the module with the rows, by the name that a child imports it by
HOST, ANY, CUDA, ONEAPI = ("cpu",), ("cpu", "cuda"), ("cuda",), ("oneapi",)


class Row(NamedTuple):
    """A library by the name that ``convert(x, name)`` takes; it is a target if dlbridge has a target of that name."""

    name: str
    module: str                             # is imported, and is the first argument of the functions below
    distributions: tuple[str, ...]          # any of them will do, and pip installs the first; none for Python's own
    make: Callable[[Any, Any], Any]         # (module, ndarray) -> an array of the library, made by itself
    values: Callable[[Any, Any], Any]       # (module, array) -> an ndarray, made by the library itself
    devices: tuple[str, ...] = ANY          # the devices whose memory it can have
    once: bool = False                      # whether the first conversion uses an array up

    def load(self) -> Any:
        """Import the library."""
        return importlib.import_module(self.module)


def flat(make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Make a maker for libraries whose arrays have one axis."""
    return lambda module, array: make(module, array.ravel())


ROWS = (
    Row("numpy", "numpy", ("numpy",), lambda numpy, array: array, lambda numpy, array: array, HOST),
    Row("torch", "torch", ("torch",),
        lambda torch, array: torch.tensor(array), lambda torch, tensor: tensor.numpy(force=True)),
    Row("jax", "jax", ("jax",), lambda jax, array: jax.numpy.array(array), lambda jax, array: np.asarray(array)),
    Row("tensorflow", "tensorflow", ("tensorflow", "tensorflow-cpu"),
        lambda tensorflow, array: tensorflow.constant(array), lambda tensorflow, tensor: tensor.numpy()),
    Row("paddle", "paddle", ("paddlepaddle", "paddlepaddle-gpu"),
        lambda paddle, array: paddle.to_tensor(array), lambda paddle, tensor: tensor.numpy()),
    Row("mlx", "mlx.core", ("mlx",), lambda mlx, array: mlx.array(array), lambda mlx, array: np.array(array)),
    Row("warp", "warp", ("warp-lang",),
        lambda warp, array: warp.array(array, device="cpu"), lambda warp, array: array.numpy()),
    Row("tvm_ffi", "tvm_ffi", ("apache-tvm-ffi",),
        lambda tvm_ffi, array: tvm_ffi.from_dlpack(array), lambda tvm_ffi, tensor: np.from_dlpack(tensor)),
    Row("onnxruntime", "onnxruntime", ("onnxruntime", "onnxruntime-gpu"),
        lambda onnxruntime, array: onnxruntime.OrtValue.ortvalue_from_numpy(array),
        lambda onnxruntime, value: value.numpy()),
    Row("array_api_strict", "array_api_strict", ("array-api-strict",),
        lambda namespace, array: namespace.asarray(array), lambda namespace, array: np.from_dlpack(array), HOST),
    Row("mindspore", "mindspore", ("mindspore",),
        lambda mindspore, array: mindspore.Tensor(array), lambda mindspore, tensor: tensor.asnumpy(), HOST),
    Row("dpnp", "dpnp", ("dpnp",),
        lambda dpnp, array: dpnp.asarray(array), lambda dpnp, array: dpnp.asnumpy(array), ONEAPI),
    Row("cupy", "cupy", ("cupy-cuda12x", "cupy-cuda13x", "cupy"),
        lambda cupy, array: cupy.asarray(array), lambda cupy, array: array.get(), CUDA),
    Row("numba", "numba.cuda", ("numba-cuda",),
        lambda cuda, array: cuda.to_device(array), lambda cuda, array: array.copy_to_host(), CUDA),
    Row("pyarrow", "pyarrow", ("pyarrow",),
        flat(lambda pyarrow, array: pyarrow.array(array)), lambda pyarrow, array: array.to_numpy()),
    Row("pandas", "pandas", ("pandas",),
        flat(lambda pandas, array: pandas.Series(array)), lambda pandas, series: series.to_numpy(), HOST),
    Row("polars", "polars", ("polars",),
        flat(lambda polars, array: polars.Series(array)), lambda polars, series: series.to_numpy(), HOST),
    Row("pillow", "PIL.Image", ("pillow",),
        lambda image, array: image.fromarray(array), lambda image, picture: np.asarray(picture), HOST),
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
    """Read the version in the metadata of the distribution; it is empty where there is no distribution."""
    for name in row.distributions:
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
