"""A row for each library: how it makes an array, what it can hold, and how it tells what an array has in it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_strict
import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import onnxruntime
import paddle
import pyarrow as pa
import tensorflow as tf
import torch
import tvm_ffi
import warp

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
SHARED = frozenset(("transposed", "every second", "backwards", "broadcast"))
jax.config.update("jax_enable_x64", True)
warp.config.log_level = warp.LOG_WARNING


class Row(NamedTuple):
    """What is true of a library, as its documents or a look at it say."""

    name: str                                       # as in convert(x, name)
    array_type: type
    make: Callable[[np.ndarray], Any]               # by the library itself
    values: Callable[[Any], Any]                    # by the library itself, as Python's numbers
    address: Callable[[Any], int] | None            # of the first element, or None where nobody tells
    dtypes: tuple[str, ...]                         # of NumPy's own, those that it has
    layouts: frozenset[str] = SHARED                # of those that it holds as they are
    shares: bool = True                             # memory of others at all
    alignment: int = 1                              # below which it cannot
    told: bool = False                              # it heeds the read-only flag, or never writes
    immutable: bool = False                         # what comes out of it is read-only
    axes: range = range(0, 6)                       # how many it can have


def address_by_interface(array):
    return array.__array_interface__["data"][0]


ROWS = (
    Row("numpy", np.ndarray, np.copy, np.ndarray.tolist, lambda x: x.ctypes.data,
        ("bool", *INTEGERS, *FLOATS, *COMPLEX), told=True),
    Row("torch", torch.Tensor, torch.tensor, torch.Tensor.tolist, torch.Tensor.data_ptr,
        ("bool", *INTEGERS, *FLOATS, *COMPLEX), SHARED - {"backwards"}),
    Row("jax", jax.Array, jnp.array, lambda x: x.tolist(), lambda x: x.unsafe_buffer_pointer(),
        ("bool", *INTEGERS, *FLOATS, *COMPLEX), frozenset(("transposed",)), alignment=64, told=True, immutable=True),
    Row("array_api_strict", type(array_api_strict.asarray([1])), array_api_strict.asarray,
        lambda x: np.asarray(x).tolist(), lambda x: np.from_dlpack(x).ctypes.data,
        ("bool", *INTEGERS, "float32", "float64", *COMPLEX), told=True),
    Row("paddle", paddle.Tensor, lambda x: paddle.from_dlpack(x.copy()), lambda x: x.tolist(), lambda x: x.data_ptr(),
        ("bool", *(name for name in INTEGERS if name != "uint16"), *FLOATS, *COMPLEX), SHARED - {"backwards"}),
    Row("tensorflow", tf.Tensor, tf.constant, lambda x: x.numpy().tolist(), None,
        ("bool", *INTEGERS, *FLOATS, *COMPLEX), frozenset(), alignment=64, told=True, immutable=True),
    Row("mlx", mx.array, mx.array, lambda x: x.tolist(), None,
        ("bool", *INTEGERS, "float16", "float32", "complex64"), SHARED - {"backwards"}, shares=False, told=True),
    Row("warp", warp.array, warp.array, lambda x: x.numpy().tolist(), lambda x: x.ptr,
        ("bool", *INTEGERS, *FLOATS), axes=range(1, 5)),
    Row("tvm_ffi", tvm_ffi.Tensor, lambda x: tvm_ffi.from_dlpack(x.copy()), lambda x: np.from_dlpack(x).tolist(),
        lambda x: x.data_ptr(), ("bool", *INTEGERS, *FLOATS)),
    Row("onnxruntime", onnxruntime.OrtValue, lambda x: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()),
        lambda x: x.numpy().tolist(), lambda x: x.data_ptr(), ("bool", *INTEGERS, *FLOATS), frozenset()),
    Row("pyarrow", pa.Tensor, lambda x: pa.Tensor.from_numpy(x.copy()), lambda x: x.to_numpy().tolist(),
        lambda x: x.to_numpy().ctypes.data if isinstance(x, pa.Tensor) else x.buffers()[1].address,
        (*INTEGERS, *FLOATS), frozenset(("transposed",)), told=True, axes=range(1, 6)),
)
