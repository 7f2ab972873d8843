"""The bridge: acquire, place, deliver."""

from types import ModuleType
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, overload

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy
import torch  # type: ignore[import-not-found, unused-ignore]
from typing_extensions import CapsuleType

from dlbridge.tensor import Tensor

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

_Array = TypeVar("_Array")

class _Namespace(Protocol):
    @property
    def from_dlpack(self) -> Any: ...

class _DLPackArray(Protocol):
    # The signature is left open, since libraries take different keywords.
    @property
    def __dlpack__(self) -> Any: ...

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
    # An int, or a ctypes object with a value.
    @property
    def handle(self) -> Any: ...

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

# The literals are for completion in editors. str covers every other name, with or without an index.
_Device: TypeAlias = Literal["cpu", "cuda"] | str | tuple[int, int | None] | _TorchDevice | _JaxDevice
_Stream: TypeAlias = int | _CudaStream | _TorchStream | _CupyStream | _NumbaStream
_Readonly: TypeAlias = Literal["copy", "share", "error"]
_To: TypeAlias = str | type[Any] | ModuleType | memoryview | _Namespace | _DLPackArray

DLPACK_VERSION: Final[tuple[int, int]]

@overload
def convert(
    src: object,
    to: Literal["numpy"],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> numpy.ndarray[Any, Any]: ...
@overload
def convert(
    src: object,
    to: Literal["torch"],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> torch.Tensor: ...
@overload
def convert(
    src: object,
    to: Literal["jax"],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> jax.Array: ...
@overload
def convert(
    src: object,
    to: Literal["memoryview"],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> memoryview: ...
@overload
def convert(
    src: object,
    to: Literal["dlpack"],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> CapsuleType: ...
@overload
def convert(
    src: object,
    to: Literal["dlbridge"],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> Tensor: ...
@overload
def convert(
    src: object,
    to: type[_Array],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> _Array: ...
@overload
def convert(
    src: object,
    to: _To,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> Any: ...
def asdlpack(
    src: object,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
) -> Tensor: ...
def from_dlpack(x: object, /, *, device: _Device | None = None, copy: bool | None = None) -> Tensor: ...
def to_dlpack(
    src: object,
    *,
    stream: _Stream | None = None,
    max_version: tuple[int, int] | None = None,
    readonly: _Readonly = "copy",
) -> CapsuleType: ...
def check_target(to: object) -> None: ...
def examine(
    facts: dict[str, Any],
    src: object,
    to: object,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
) -> None: ...
