"""Write docs/dtypes.md: what happens to each dtype between each two libraries, from a run of every conversion."""

from __future__ import annotations

import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import ml_dtypes
import numpy as np
import torch

import dlbridge

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "dtypes.md"
NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex32", "complex64", "complex128", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn",
    "float6_e3m2fn", "float4_e2m1fn", "int4", "uint4",
)
# torch has float4 in pairs, under a name of its own; its int4 and uint4 are names without operations.
TORCH_NAMES = {"float4_e2m1fn": "float4_e2m1fn_x2", "int4": "", "uint4": ""}
ROUTES = (
    ("numpy", "torch"), ("numpy", "jax"), ("torch", "numpy"), ("torch", "jax"), ("jax", "numpy"), ("jax", "torch"),
    ("numpy", "memoryview"), ("numpy", "dlpack"),
)
HEAD = """# dtypes

This table shows what `dlbridge.convert` does with each dtype for each pair of libraries:

- *shared*: with `readonly="share"`, the result has the same memory. For JAX, this requires memory that is aligned to
  64 bytes.
- *copied*: the libraries store the type in different forms, so `copy=False` raises `CopyRequiredError`.
- *no*: `convert` raises `ConversionError` because the second library lacks the type, or `UnsupportedError` because the
  first cannot export it (JAX: int4, uint4).
- *none*: the first library has no such array.

Values never change. 64-bit types can be converted to JAX only if `jax_enable_x64` is on. NumPy has the types from
bfloat16 on, and complex32, through ml_dtypes. `python tools/pages dtypes` makes this page by
running every conversion.

"""


def aligned(dtype: np.dtype) -> np.ndarray:
    """Zeros at a multiple of 64 bytes, which JAX needs to share."""
    room = np.zeros(8 * dtype.itemsize + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start:start + 8 * dtype.itemsize].view(dtype).reshape(2, 4)


def source(library: str, name: str) -> object | None:
    """Make an array of the type; None where the library has none."""
    array = aligned(np.dtype(getattr(ml_dtypes, name, None) or name))
    if library == "numpy":
        return array
    if library == "torch":
        dtype = getattr(torch, TORCH_NAMES.get(name, name) or "-", None)
        return None if dtype is None else torch.from_numpy(array.view(np.uint8)).view(dtype)
    try:
        return jax.numpy.asarray(array)
    except (TypeError, ValueError, jax.errors.JaxRuntimeError):
        return None


def outcome(library: str, name: str, target: str) -> str:
    """One cell: try without a copy, then with one."""
    src = source(library, name)
    if src is None:
        return "none"
    # JAX's arrays are read-only, which is no matter of the dtype.
    shared = {"readonly": "share"}
    try:
        dlbridge.convert(src, target, copy=False, **shared)
        return "shared"
    except dlbridge.CopyRequiredError:
        dlbridge.convert(src, target, **shared)
        return "copied"
    except (dlbridge.ConversionError, dlbridge.UnsupportedError):
        return "no"


def page() -> str:
    """Run every conversion and lay the outcomes out as a page."""
    lines = ["| dtype | " + " | ".join(f"{library} →<br>{target}" for library, target in ROUTES) + " |",
             "|---" * (len(ROUTES) + 1) + "|"]
    with jax.enable_x64(True):
        for name in NAMES:
            cells = [outcome(library, name, target) for library, target in ROUTES]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return HEAD + "\n".join(lines) + "\n"


def main(words: list[str]) -> None:
    PAGE.write_text(page())
