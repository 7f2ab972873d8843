"""Dask: its collections are not in memory yet; what its scheduler asks of a Tensor is told here."""

import math
import sys
from typing import Any

import numpy as np

from dlbridge.libraries.library import Arrays, Library


def register_sizeof(sizeof: Any) -> None:
    """Tell Dask how much of its memory limits a Tensor counts for. Dask calls this by an entry point."""
    sizeof.register(sys.modules["dlbridge"].Tensor, size_of)


def size_of(tensor: Any) -> int:
    """The bytes of a Tensor's elements. Of those that are repeated by strides of 0 one counts, as in an ndarray."""
    if not tensor.itemsize:
        return int(tensor.nbytes)       # packed elements are compact
    counted = [extent for extent, stride in zip(tensor.shape, tensor.strides, strict=True) if stride]
    return int(tensor.itemsize * math.prod(counted))


def token_of(tensor: Any) -> tuple[Any, ...]:
    """What Dask names a Tensor by: its bytes, which Dask hashes as it does those of an ndarray, and their meaning."""
    _, (elements, *described) = sys.modules["dlbridge.tensor"].by_value(tensor, 5)
    return ("dlbridge.Tensor", sys.modules["dask.base"].normalize_token(np.frombuffer(elements, "u1")), *described)


LIBRARY = Library(
    name="dask",
    arrays=(Arrays("DaskMethodsMixin", {"": "pass x.compute()"}),),
)
