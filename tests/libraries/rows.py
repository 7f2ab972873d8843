"""A row for each library that the extra "all" has. Paddle is imported before TensorFlow, or the process ends."""

import array_api_strict
import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import onnxruntime
import openvino
import paddle
import pyarrow as pa
import tensorflow as tf
import tinygrad
import torch
import tvm_ffi
import warp
from ai_edge_litert.tensor_buffer import TensorBuffer
from libraries.row import COMPLEX, FLOAT8, FLOATS, INTEGERS, ML_DTYPES, SHARED, SUBBYTE, Row

jax.config.update("jax_enable_x64", True)
warp.config.log_level = warp.LOG_WARNING


def address_by_interface(array):
    return array.__array_interface__["data"][0]


def address_by_bytes(tensor):
    return np.frombuffer(tensor._buffer().as_memoryview(force_zero_copy=True), "u1").ctypes.data


def read_litert(buffer):
    details = buffer.get_tensor_details()
    return buffer.read(details["shape"][0], details["dtype"])


ROWS = (
    Row("numpy", np.ndarray, np.copy, np.ndarray.tolist, lambda x: x.ctypes.data,
        ("bool", *INTEGERS, *FLOATS, *COMPLEX), told=True, ml_dtypes=ML_DTYPES),
    Row("torch", torch.Tensor, torch.tensor, torch.Tensor.tolist, torch.Tensor.data_ptr,
        ("bool", *INTEGERS, *FLOATS, *COMPLEX), SHARED - {"backwards"},
        ml_dtypes=("bfloat16", *FLOAT8, "float4_e2m1fn")),
    Row("jax", jax.Array, jnp.array, lambda x: x.tolist(), lambda x: x.unsafe_buffer_pointer(),
        ("bool", *INTEGERS, *FLOATS, *COMPLEX), frozenset(("transposed",)), alignment=64, told=True, immutable=True,
        ml_dtypes=tuple(name for name in ML_DTYPES if name not in ("int2", "uint2")), unexported=("int4", "uint4")),
    Row("array_api_strict", type(array_api_strict.asarray([1])), array_api_strict.asarray,
        lambda x: np.asarray(x).tolist(), lambda x: np.from_dlpack(x).ctypes.data,
        ("bool", *INTEGERS, "float32", "float64", *COMPLEX), told=True),
    Row("paddle", paddle.Tensor, lambda x: paddle.from_dlpack(x.copy()), lambda x: x.tolist(), lambda x: x.data_ptr(),
        ("bool", *(name for name in INTEGERS if name != "uint16"), *FLOATS, *COMPLEX), SHARED - {"backwards"},
        ml_dtypes=("bfloat16", "float8_e4m3fn", "float8_e5m2")),
    Row("tensorflow", tf.Tensor, tf.constant, lambda x: x.numpy().tolist(), None,
        ("bool", *INTEGERS, *FLOATS, *COMPLEX), frozenset(), alignment=64, told=True, immutable=True,
        ml_dtypes=("bfloat16",)),
    Row("mlx", mx.array, mx.array, lambda x: x.tolist(), None,
        ("bool", *INTEGERS, "float16", "float32", "complex64"), SHARED - {"backwards"}, shares=False, told=True,
        ml_dtypes=("bfloat16",)),
    Row("warp", warp.array, warp.array, lambda x: x.numpy().tolist(), lambda x: x.ptr,
        ("bool", *INTEGERS, *FLOATS), axes=range(1, 5), ml_dtypes=("bfloat16",)),
    Row("tvm_ffi", tvm_ffi.Tensor, lambda x: tvm_ffi.from_dlpack(x.copy()), lambda x: np.from_dlpack(x).tolist(),
        lambda x: x.data_ptr(), ("bool", *INTEGERS, *FLOATS), ml_dtypes=("bfloat16", *FLOAT8, "float4_e2m1fn")),
    Row("onnxruntime", onnxruntime.OrtValue, lambda x: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()),
        lambda x: x.numpy().tolist(), lambda x: x.data_ptr(), ("bool", *INTEGERS, *FLOATS), frozenset(),
        ml_dtypes=("bfloat16", *FLOAT8, *SUBBYTE)),
    Row("pyarrow", pa.Tensor, lambda x: pa.Tensor.from_numpy(x.copy()), lambda x: x.to_numpy().tolist(),
        lambda x: x.to_numpy().ctypes.data if isinstance(x, pa.Tensor) else x.buffers()[1].address,
        (*INTEGERS, *FLOATS), frozenset(("transposed",)), told=True, axes=range(1, 6)),
    Row("openvino", openvino.Tensor, openvino.Tensor, lambda x: x.data.tolist(), lambda x: x.data.ctypes.data,
        ("bool", *INTEGERS, *FLOATS), frozenset(),
        ml_dtypes=("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")),
    Row("litert", TensorBuffer, lambda x: TensorBuffer.create_from_host_memory(x.copy()),
        lambda x: read_litert(x).tolist(), None, ("bool", "int8", "uint8", "int32", "float16", "float32"), frozenset(),
        alignment=64, axes=range(1, 2), ml_dtypes=("bfloat16", "float8_e4m3fn", "float8_e5m2"), copies=True),
    Row("tinygrad", tinygrad.Tensor, lambda x: tinygrad.Tensor(x.copy()).realize(), lambda x: x.tolist(),
        address_by_bytes, ("bool", *INTEGERS, *FLOATS), frozenset(), alignment=64,
        ml_dtypes=("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")),
)
