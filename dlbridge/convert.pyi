"""The bridge: acquire, place, deliver."""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final, Literal, Protocol, SupportsIndex, TypeAlias, TypeVar, overload

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy
import torch  # type: ignore[import-not-found, unused-ignore]
from typing_extensions import CapsuleType

from dlbridge.tensor import Tensor

__test__: dict[str, str]

_Array = TypeVar("_Array")

class _DLPackArray(Protocol):
    # The signature is left open, since libraries take different keywords.
    @property
    def __dlpack__(self) -> Any: ...

class _InterfaceArray(Protocol):
    # An image of Pillow has no __dlpack__.
    @property
    def __array_interface__(self) -> Any: ...

_Example = TypeVar("_Example", bound=_DLPackArray | _InterfaceArray)
_Array_co = TypeVar("_Array_co", covariant=True)

class _Namespace(Protocol[_Array_co]):
    """torch, jax.numpy, cupy, and any other that has a from_dlpack."""

    @property
    def from_dlpack(self) -> Callable[..., _Array_co]: ...

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
class _LibraryDType(Protocol):
    # torch.dtype and its likes, which are written by their names.
    @property
    def itemsize(self) -> int: ...

# What numpy.dtype takes, and the names of types that NumPy lacks.
_DType: TypeAlias = str | numpy.dtype[Any] | type[Any] | _LibraryDType
_Readonly: TypeAlias = Literal["copy", "share", "error"]
_Name: TypeAlias = Literal[
    "array_api_strict", "cupy", "dlbridge", "dlpack", "dpnp", "jax", "litert", "memoryview", "mindspore", "mlx",
    "numba", "numpy", "onnxruntime", "openvino", "paddle", "pillow", "pyarrow", "tensorflow", "tinygrad", "torch",
    "tvm_ffi", "warp",
]
_To: TypeAlias = _Name | str | type[Any] | ModuleType | memoryview | _Namespace[Any] | _DLPackArray | _InterfaceArray

DLPACK_VERSION: Final[tuple[int, int]]

@overload
def convert(
    src: object, to: Literal["numpy"] | _NumpyModule | numpy.ndarray[Any, Any], *, device: _Device | None = None,
    copy: bool | None = None, stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False,
    narrow: bool = False, dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> numpy.ndarray[Any, Any]: ...
@overload
def convert(
    src: object, to: Literal["memoryview"] | memoryview, *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> memoryview: ...
@overload
def convert(
    src: object, to: Literal["dlpack"], *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> CapsuleType: ...
@overload
def convert(
    src: object, to: Literal["dlbridge"], *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> Tensor: ...
@overload
def convert(
    src: object, to: Literal["torch"] | _TorchModule, *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> torch.Tensor: ...
@overload
def convert(
    src: object, to: Literal["jax"] | _JaxModule, *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> jax.Array: ...
@overload
def convert(
    src: object, to: _Namespace[_Array], *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> _Array: ...
@overload
def convert(
    src: object, to: ModuleType, *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> Any: ...
@overload
def convert(
    src: object, to: type[_Array], *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> _Array: ...
@overload
def convert(
    src: object, to: _Example, *, device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
    dtype: _DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> _Example: ...
@overload
def convert(
    src: object, to: _To, *, device: _Device | None = None, copy: bool | None = None, stream: _Stream | None = None,
    readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False, dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None, out: None = None,
) -> Any: ...
@overload
def convert(
    src: object, to: _To, *, device: _Device | None = None, copy: bool | None = None, stream: _Stream | None = None,
    readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False, dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None, out: _Array,
) -> _Array: ...
def asdlpack(
    src: object, *, device: _Device | None = None, copy: bool | None = None, stream: _Stream | None = None,
    readonly: _Readonly = "copy", detach: bool = False,
) -> Tensor: ...
def from_dlpack(x: object, /, *, device: _Device | None = None, copy: bool | None = None) -> Tensor: ...
def to_dlpack(
    src: object, *, stream: _Stream | None = None, max_version: tuple[int, int] | None = None,
    readonly: _Readonly = "copy",
) -> CapsuleType: ...

def from_pointer(
    address: SupportsIndex, shape: Iterable[SupportsIndex], dtype: Any, *,
    strides: Iterable[SupportsIndex] | None = None, device: _Device = "cpu", readonly: bool = False,
    owner: object = None, stream: _Stream | None = None,
) -> Tensor: ...
def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = "float64") -> Tensor: ...
def get_include() -> str: ...
