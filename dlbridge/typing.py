"""Types for the annotations of code that calls dlbridge: what any array is, and what ``to`` and the keywords take.

They are for type checkers. What dlbridge takes when it runs is more: memory without any of these attributes, too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar

import numpy

__all__ = [
    "Array", "DLPackArray", "DType", "Device", "InterfaceArray", "Keywords", "Name", "Namespace", "Readonly", "Stream",
    "Target", "To",
]

ArrayT = TypeVar("ArrayT")
ArrayT_co = TypeVar("ArrayT_co", covariant=True)


# ---- arrays ----------------------------------------------------------------------------------------------------------

class DLPackArray(Protocol):
    """An array with ``__dlpack__``; the signature is left open, since libraries take different keywords."""

    @property
    def __dlpack__(self) -> Any: ...


class InterfaceArray(Protocol):
    """An array with ``__array_interface__``, such as an image of Pillow."""

    @property
    def __array_interface__(self) -> Any: ...


# What an array of any library is: the bound of a type variable for functions that give back what they get.
Array: TypeAlias = DLPackArray | InterfaceArray


# ---- targets ---------------------------------------------------------------------------------------------------------

class Namespace(Protocol[ArrayT_co]):
    """``torch``, ``jax.numpy``, ``cupy``, and any other namespace that has a ``from_dlpack``."""

    @property
    def from_dlpack(self) -> Callable[..., ArrayT_co]: ...


# What makes ``convert(x, to)`` an array of a type: the type itself, or its namespace.
Target: TypeAlias = type[ArrayT] | Namespace[ArrayT]
# The names that editors complete. A library that is registered has another one.
Name: TypeAlias = Literal[
    "array_api_strict", "awkward", "cupy", "dlbridge", "dlpack", "dpnp", "jax", "litert", "memoryview", "mindspore",
    "mlx", "numba", "numpy", "onnxruntime", "openvino", "paddle", "pillow", "pyarrow", "scipy", "sparse",
    "tensorflow", "tinygrad", "torch", "tvm_ffi", "warp",
]
# Whatever ``to`` takes.
To: TypeAlias = Name | str | type[Any] | ModuleType | memoryview | Namespace[Any] | DLPackArray | InterfaceArray


# ---- keywords --------------------------------------------------------------------------------------------------------

class _CudaStream(Protocol):
    """A stream by the protocol that cuda-python defined."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...


class _CupyStream(Protocol):
    @property
    def ptr(self) -> int: ...


class _NumbaStream(Protocol):
    @property
    def handle(self) -> Any:
        """An int, or a ctypes object with a value."""


class _TorchDevice(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int | None: ...


class _JaxDevice(Protocol):
    @property
    def platform(self) -> str: ...
    @property
    def id(self) -> int: ...


class _LibraryDType(Protocol):
    """``torch.dtype`` and its likes, which are written by their names."""

    @property
    def itemsize(self) -> int: ...


# The literals are for completion in editors. str covers every other name, with or without an index.
Device: TypeAlias = Literal["cpu", "cuda"] | str | tuple[int, int | None] | _TorchDevice | _JaxDevice
Stream: TypeAlias = int | _CudaStream | _TorchStream | _CupyStream | _NumbaStream
# What numpy.dtype takes, and the names of types that NumPy lacks.
DType: TypeAlias = str | numpy.dtype[Any] | type[Any] | _LibraryDType
Readonly: TypeAlias = Literal["copy", "share", "error"]


class Keywords(TypedDict, total=False):
    """The keywords that ``convert`` and the functions for trees have in common, for functions that hand them on."""

    device: Device | None
    copy: bool | None
    stream: Stream | None
    readonly: Readonly
    detach: bool
    narrow: bool
    order: Literal["C"] | None
