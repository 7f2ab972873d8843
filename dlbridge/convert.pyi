"""The bridge: acquire, place, deliver."""

from types import ModuleType
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, overload

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy
import torch  # type: ignore[import-not-found, unused-ignore]
from typing_extensions import CapsuleType

from dlbridge.request import _Device, _MaxVersion, _Readonly, _Stream
from dlbridge.tensor import Tensor

__test__: dict[str, str]

_Array = TypeVar("_Array")

class _Namespace(Protocol):
    @property
    def from_dlpack(self) -> Any: ...

class _DLPackArray(Protocol):
    # Any signature: libraries know different keywords.
    @property
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

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
    max_version: _MaxVersion | None = None,
    readonly: _Readonly = "copy",
) -> CapsuleType: ...
def examine(
    facts: dict[str, Any],
    src: object,
    to: _To,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
) -> None: ...
