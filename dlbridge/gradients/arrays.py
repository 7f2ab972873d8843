"""What both directions ask of arrays of JAX, and of its modes."""

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from dlbridge.convert import convert
from dlbridge.errors import ConversionError, DLBridgeError, UnsupportedError, refusal
from dlbridge.trees.failure import Failure

Arrays = Sequence[Any]
config: Any = jax.config
KINDS = (jax.Array, torch.Tensor)


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, KINDS)


def is_array_or_float(leaf: Any) -> bool:
    return type(leaf) in (float, complex) or is_array(leaf)


def is_inexact(array: Any) -> bool:
    """Whether there are gradients for arrays of this type."""
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def is_key(array: Any) -> bool:
    """Whether this is an array of jax.random keys, or of another type that has no memory of its own."""
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.extended))


def is_traced(array: Any) -> bool:
    return isinstance(array, jax.core.Tracer)


def is_on_device(array: Any) -> bool:
    return isinstance(array, jax.Array) and next(iter(array.devices())).platform != "cpu"


def wait_for_host(arrays: Arrays) -> None:
    """Wait until arrays of the host are there. On a device streams are in order, and Python goes on."""
    jax.block_until_ready([array for array in arrays if not is_on_device(array)])  # type: ignore[no-untyped-call]


def places_of(kind: type | tuple[type, ...], arrays: Arrays) -> tuple[int, ...]:
    return tuple(place for place, array in enumerate(arrays) if isinstance(array, kind))


def check_no_key(array: Any) -> None:
    """Refuse keys of jax.random in a call of a function of torch."""
    if is_key(array):
        raise Failure(array, refusal(UnsupportedError, "accepts", "dtype", str(array.dtype), "is none that torch has",
                                     "pass jax.random.key_data(x)"))


def convert_leaf(array: Any, to: str, keywords: dict[str, Any]) -> Any:
    """convert(), whose error is to say which of the arguments the array is."""
    try:
        return convert(array, to, **keywords)
    except DLBridgeError as error:
        raise Failure(array, error) from None


def check_constant(tensor: Any) -> None:
    """Refuse a tensor that wants a gradient in a call that JAX differentiates."""
    if tensor.requires_grad:
        raise Failure(tensor, refusal(
            ConversionError, "accepts", "requires_grad", True, "would be lost, since JAX differentiates this call",
            'pass x.detach(), or dlbridge.convert(x, "jax", detach=True) to have JAX differentiate by it'))


def has_x64() -> bool:
    return bool(config.jax_enable_x64)


def in_mode(x64: bool) -> Any:
    """The mode of JAX that another thread was in."""
    return contextlib.nullcontext() if has_x64() == x64 else jax.enable_x64(x64)
