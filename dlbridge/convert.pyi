"""The bridge: acquire, place, deliver."""

from collections.abc import Iterable
from types import ModuleType
from typing import Any, Final, Literal, Protocol, SupportsIndex, TypeVar, overload

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy
import torch  # type: ignore[import-not-found, unused-ignore]
from typing_extensions import CapsuleType

from dlbridge.tensor import Tensor
from dlbridge.typing import Array, Device, DType, Namespace, Readonly, Stream, Target, To

__test__: dict[str, str]

_Array = TypeVar("_Array")

_Example = TypeVar("_Example", bound=Array)

class _NumpyModule(Protocol):
    # numpy.from_dlpack leaves out the types that it cannot take, bools and bfloat16 among them.
    @property
    def ndarray(self) -> type[numpy.ndarray[Any, Any]]: ...

class _JaxModule(Protocol):
    @property
    def Array(self) -> type[jax.Array]: ...

class _TorchModule(Protocol):
    # mypy does not see torch.from_dlpack, which torch exports without naming it in __all__.
    @property
    def Tensor(self) -> type[torch.Tensor]: ...

DLPACK_VERSION: Final[tuple[int, int]]

@overload
def convert(
    src: object, to: Literal["numpy"] | _NumpyModule | numpy.ndarray[Any, Any], *, device: Device | None = None,
    copy: bool | None = None, stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False,
    narrow: bool = False, order: Literal["C"] | None = None, dtype: DType | None = None,
    shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> numpy.ndarray[Any, Any]: ...
@overload
def convert(
    src: object, to: Literal["memoryview"] | memoryview, *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> memoryview: ...
@overload
def convert(
    src: object, to: Literal["dlpack"], *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> CapsuleType: ...
@overload
def convert(
    src: object, to: Literal["dlbridge"], *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> Tensor: ...
@overload
def convert(
    src: object, to: Literal["torch"] | _TorchModule, *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> torch.Tensor: ...
@overload
def convert(
    src: object, to: Literal["jax"] | _JaxModule, *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> jax.Array: ...
@overload
def convert(
    src: object, to: Namespace[_Array], *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> _Array: ...
@overload
def convert(
    src: object, to: ModuleType, *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> Any: ...
@overload
def convert(
    src: object, to: type[_Array], *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> _Array: ...
@overload
def convert(
    src: object, to: Target[_Array], *, device: Device | None = None, copy: bool | None = None,
    stream: Stream | None = None, readonly: Readonly = "copy", detach: bool = False, narrow: bool = False,
    order: Literal["C"] | None = None, dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> _Array: ...
@overload
def convert(
    src: object, to: _Example, *, device: Device | None = None, copy: bool | None = None, stream: Stream | None = None,
    readonly: Readonly = "copy", detach: bool = False, narrow: bool = False, order: Literal["C"] | None = None,
    dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> _Example: ...
@overload
def convert(
    src: object, to: To, *, device: Device | None = None, copy: bool | None = None, stream: Stream | None = None,
    readonly: Readonly = "copy", detach: bool = False, narrow: bool = False, order: Literal["C"] | None = None,
    dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> Any: ...
@overload
def convert(
    src: object, to: To, *, device: Device | None = None, copy: bool | None = None, stream: Stream | None = None,
    readonly: Readonly = "copy", detach: bool = False, narrow: bool = False, order: Literal["C"] | None = None,
    dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: _Array,
) -> _Array: ...
def asdlpack(
    src: object, *, device: Device | None = None, copy: bool | None = None, stream: Stream | None = None,
    readonly: Readonly = "copy", detach: bool = False,
) -> Tensor: ...
def from_dlpack(x: object, /, *, device: Device | None = None, copy: bool | None = None) -> Tensor: ...
def to_dlpack(
    src: object, *, stream: Stream | None = None, max_version: tuple[int, int] | None = None,
    readonly: Readonly = "copy",
) -> CapsuleType: ...

def from_pointer(
    address: SupportsIndex, shape: Iterable[SupportsIndex], dtype: Any, *,
    strides: Iterable[SupportsIndex] | None = None, device: Device = "cpu", readonly: bool = False,
    owner: object = None, stream: Stream | None = None,
) -> Tensor: ...
def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = "float64") -> Tensor: ...
def get_include() -> str: ...
