"""How each library itself makes an array and reads one: the rows of ``dlbridge matrix`` and ``info``."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dlbridge.libraries.litert import read as read_litert

HOST = ("cpu",)


class Sample(NamedTuple):
    """An array of a library, made and read by the library's own functions."""

    make: Callable[[Any, Any], Any]         # of the module and an ndarray
    values: Callable[[Any, Any], Any]       # of the module and an array: an ndarray
    devices: tuple[str, ...] = ("cpu", "cuda")      # whose memory it can have
    distributions: tuple[str, ...] = ()     # any of them has it, and pip installs the first; the name by default


# By the name of the library.
SAMPLES = {
    "array_api_strict": Sample(
        lambda namespace, array: namespace.asarray(array), lambda namespace, array: np.from_dlpack(array),
        devices=HOST, distributions=("array-api-strict",)),
    "cupy": Sample(
        lambda cupy, array: cupy.asarray(array), lambda cupy, array: array.get(),
        devices=("cuda",), distributions=("cupy-cuda12x", "cupy-cuda13x", "cupy")),
    "dpnp": Sample(
        lambda dpnp, array: dpnp.asarray(array), lambda dpnp, array: dpnp.asnumpy(array), devices=("oneapi",)),
    "jax": Sample(lambda jax, array: jax.numpy.array(array), lambda jax, array: np.asarray(array)),
    "litert": Sample(
        lambda module, array: module.TensorBuffer.create_from_host_memory(array.ravel()),
        lambda module, buffer: read_litert(buffer), devices=HOST, distributions=("ai-edge-litert",)),
    "mindspore": Sample(
        lambda mindspore, array: mindspore.Tensor(array), lambda mindspore, tensor: tensor.asnumpy(), devices=HOST),
    "mlx": Sample(lambda mlx, array: mlx.array(array), lambda mlx, array: np.array(array)),
    "numba": Sample(
        lambda cuda, array: cuda.to_device(array), lambda cuda, array: array.copy_to_host(),
        devices=("cuda",), distributions=("numba-cuda",)),
    "numpy": Sample(lambda numpy, array: array, lambda numpy, array: array, devices=HOST),
    "onnxruntime": Sample(
        lambda onnxruntime, array: onnxruntime.OrtValue.ortvalue_from_numpy(array),
        lambda onnxruntime, value: value.numpy(), distributions=("onnxruntime", "onnxruntime-gpu")),
    "openvino": Sample(
        lambda openvino, array: openvino.Tensor(array), lambda openvino, tensor: tensor.data, devices=HOST),
    "paddle": Sample(
        lambda paddle, array: paddle.to_tensor(array), lambda paddle, tensor: tensor.numpy(),
        distributions=("paddlepaddle", "paddlepaddle-gpu")),
    "pandas": Sample(
        lambda pandas, array: pandas.Series(array.ravel()), lambda pandas, series: series.to_numpy(), HOST),
    "pillow": Sample(lambda image, array: image.fromarray(array), lambda image, picture: np.asarray(picture), HOST),
    "polars": Sample(
        lambda polars, array: polars.Series(array.ravel()), lambda polars, series: series.to_numpy(), HOST),
    "pyarrow": Sample(lambda pyarrow, array: pyarrow.array(array.ravel()), lambda pyarrow, array: array.to_numpy()),
    "tensorflow": Sample(
        lambda tensorflow, array: tensorflow.constant(array), lambda tensorflow, tensor: tensor.numpy(),
        distributions=("tensorflow", "tensorflow-cpu")),
    "tinygrad": Sample(
        lambda tinygrad, array: tinygrad.Tensor(array).realize(), lambda tinygrad, tensor: tensor.numpy(),
        devices=HOST),
    "torch": Sample(lambda torch, array: torch.tensor(array), lambda torch, tensor: tensor.numpy(force=True)),
    "tvm_ffi": Sample(
        lambda tvm_ffi, array: tvm_ffi.from_dlpack(array), lambda tvm_ffi, tensor: np.from_dlpack(tensor),
        distributions=("apache-tvm-ffi",)),
    "warp": Sample(
        lambda warp, array: warp.array(array, device="cpu"), lambda warp, array: array.numpy(),
        distributions=("warp-lang",)),
}
