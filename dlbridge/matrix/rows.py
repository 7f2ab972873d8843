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
    distributions: tuple[str, ...]          # pip installs the first, any of them will do; none for Python's own
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
    Row("numpy", "numpy", ("numpy",), lambda np, x: x, lambda np, x: x, HOST),
    Row("torch", "torch", ("torch",), lambda torch, x: torch.tensor(x), lambda torch, x: x.numpy(force=True)),
    Row("jax", "jax", ("jax",), lambda jax, x: jax.numpy.array(x), lambda jax, x: np.asarray(x)),
    Row("tensorflow", "tensorflow", ("tensorflow", "tensorflow-cpu"),
        lambda tf, x: tf.constant(x), lambda tf, x: x.numpy()),
    Row("paddle", "paddle", ("paddlepaddle", "paddlepaddle-gpu"),
        lambda paddle, x: paddle.to_tensor(x), lambda paddle, x: x.numpy()),
    Row("mlx", "mlx.core", ("mlx",), lambda mx, x: mx.array(x), lambda mx, x: np.array(x)),
    Row("warp", "warp", ("warp-lang",), lambda wp, x: wp.array(x, device="cpu"), lambda wp, x: x.numpy()),
    Row("tvm_ffi", "tvm_ffi", ("apache-tvm-ffi",),
        lambda tvm_ffi, x: tvm_ffi.from_dlpack(x), lambda tvm_ffi, x: np.from_dlpack(x)),
    Row("onnxruntime", "onnxruntime", ("onnxruntime", "onnxruntime-gpu"),
        lambda ort, x: ort.OrtValue.ortvalue_from_numpy(x), lambda ort, x: x.numpy()),
    Row("array_api_strict", "array_api_strict", ("array-api-strict",),
        lambda xp, x: xp.asarray(x), lambda xp, x: np.from_dlpack(x), HOST),
    Row("mindspore", "mindspore", ("mindspore",), lambda ms, x: ms.Tensor(x), lambda ms, x: x.asnumpy(), HOST),
    Row("dpnp", "dpnp", ("dpnp",), lambda dpnp, x: dpnp.asarray(x), lambda dpnp, x: dpnp.asnumpy(x), ONEAPI),
    Row("cupy", "cupy", ("cupy-cuda12x", "cupy-cuda13x", "cupy"),
        lambda cupy, x: cupy.asarray(x), lambda cupy, x: x.get(), CUDA),
    Row("numba", "numba.cuda", ("numba-cuda",),
        lambda cuda, x: cuda.to_device(x), lambda cuda, x: x.copy_to_host(), CUDA),
    Row("pyarrow", "pyarrow", ("pyarrow",), flat(lambda pa, x: pa.array(x)), lambda pa, x: x.to_numpy()),
    Row("pandas", "pandas", ("pandas",), flat(lambda pd, x: pd.Series(x)), lambda pd, x: x.to_numpy(), HOST),
    Row("polars", "polars", ("polars",), flat(lambda pl, x: pl.Series(x)), lambda pl, x: x.to_numpy(), HOST),
    Row("pillow", "PIL.Image", ("pillow",), lambda image, x: image.fromarray(x), lambda image, x: np.asarray(x), HOST),
    Row("memoryview", "builtins", (), lambda python, x: memoryview(x), lambda python, x: np.asarray(x), HOST),
    Row("bytearray", "builtins", (), lambda python, x: bytearray(x), lambda python, x: np.frombuffer(x, "u1"), HOST),
    Row("dlpack", "builtins", (), lambda python, x: dlbridge.to_dlpack(x),
        lambda python, x: np.from_dlpack(dlbridge.asdlpack(x)), once=True),
    Row("dlbridge", "dlbridge", ("dlbridge",), lambda bridge, x: bridge.asdlpack(x), lambda bridge, x: np.asarray(x)),
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
