"""The bridge: acquire, place, deliver."""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final, Literal, Protocol, SupportsIndex, TypeAlias, TypeVar, overload

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy
import torch  # type: ignore[import-not-found, unused-ignore]
from typing_extensions import CapsuleType

from dlbridge.tensor import Tensor

__pyx_capi__: dict[str, CapsuleType]
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
    "array_api_strict",
    "cupy",
    "dlbridge",
    "dlpack",
    "dpnp",
    "jax",
    "litert",
    "memoryview",
    "mindspore",
    "mlx",
    "numba",
    "numpy",
    "onnxruntime",
    "openvino",
    "paddle",
    "pillow",
    "pyarrow",
    "tensorflow",
    "tinygrad",
    "torch",
    "tvm_ffi",
    "warp",
]
_To: TypeAlias = _Name | str | type[Any] | ModuleType | memoryview | _Namespace[Any] | _DLPackArray | _InterfaceArray

DLPACK_VERSION: Final[tuple[int, int]]

@overload
def convert(
    src: object,
    to: Literal["numpy"] | _NumpyModule | numpy.ndarray[Any, Any],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> numpy.ndarray[Any, Any]:
    """Give an array of one library to another, without copying where that is possible.

    Parameters
    ----------
    src : object
        Anything with the C exchange API, ``__dlpack__``, ``__cuda_array_interface__``, ``__array_struct__``,
        ``__array_interface__``, one of Arrow's C interfaces or the buffer protocol; or a DLPack capsule, which is
        consumed.
    to : str, module, type, array or namespace
        The target: ``"torch"``, ``torch``, ``torch.Tensor``, an array (its library and device), or any namespace with
        ``from_dlpack``. :func:`dlbridge.targets` lists the names.
    device : str, tuple or device object, optional
        Where the result shall be: ``"cpu"``, ``"cuda:1"``, ``(type, id)``, or the library's own device object or name.
        None leaves the memory where it is: memory never changes device without being asked to. Where the library
        numbers several devices of the host, as JAX can, ``"cpu"`` is any of them, and None is where the library makes
        new arrays.
    copy : bool, optional
        None copies only if the target does not support the memory as it is, False never copies, True always does.
    stream : int or stream object, optional
        The consumer's stream, numbered as in the array API standard. Host memory has no stream.
    readonly : {"copy", "share", "error"}
        What to do with memory that is read-only on one side and writable on the other: read-only memory if the target
        has no flag for it, and writable memory if the target's arrays are immutable (JAX, TensorFlow, pyarrow). Copy
        it, share it (you promise that nothing writes to it), or raise. All other memory is shared.
    detach : bool
        Take the data of a torch tensor that requires a gradient.
    narrow : bool
        Take the target's nearest type where it lacks a wide one (JAX without x64, MLX, Pillow): float64 becomes
        float32, complex128 complex64, and int64 int32. This rounds floating-point numbers, and is always a copy.
    dtype : str or dtype, optional
        How to see a source of bytes, such as a file's: ``"bfloat16"``, a typestr such as ``">f4"``, the dtype of a
        library such as torch, or what :class:`numpy.dtype` takes. Nothing is cast. Bytes are a buffer without a format,
        or an array of uint8 or int8 with one axis.
    shape : tuple of int, optional
        The shape of a source of bytes, in elements; one extent may be -1. Shape and dtype take all of the bytes. With a
        shape, an array of bytes in C order may have any number of axes.
    out : array, optional
        An array of the target's library in host memory, of any layout, that takes a copy and is returned. It has the
        dtype and the shape of the result, and may overlap the source.

    Returns
    -------
    array
        An array of the target's library; src itself if it is one already. It shares the memory of src and keeps it
        alive, unless a copy was needed or asked for. A copy has its own memory, writable and dense (but strides of 0
        stay in a copy that was made because of ``readonly``).

    Raises
    ------
    TypeError, ValueError
        A keyword has a value that it does not take.
    MemoryError
        A copy does not fit into the memory available.
    UnsupportedError
        src offers no protocol, the target is unknown, or ``out`` is no array of it.
    ConversionError
        The memory cannot be described for that target or by ``dtype`` and ``shape``, a value does not fit into the
        narrower type, or ``out`` cannot be written or has another dtype or shape.
    CopyRequiredError
        A copy is needed and ``copy=False``.
    DeviceError
        The memory is not on the device where it is wanted.
    DeviceMemoryError
        A copy does not fit into the memory of the device.
    MissingLibraryError
        The target's library is not installed.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> source = bytearray(8)
    >>> array = dlbridge.convert(source, "numpy")
    >>> array[0] = 7
    >>> source[0]
    7
    """
@overload
def convert(
    src: object,
    to: Literal["memoryview"] | memoryview,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
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
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
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
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> Tensor: ...
@overload
def convert(
    src: object,
    to: Literal["torch"] | _TorchModule,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> torch.Tensor: ...
@overload
def convert(
    src: object,
    to: Literal["jax"] | _JaxModule,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> jax.Array: ...
@overload
def convert(
    src: object,
    to: _Namespace[_Array],
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> _Array: ...
@overload
def convert(
    src: object,
    to: ModuleType,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> Any: ...
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
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> _Array: ...
@overload
def convert(
    src: object,
    to: _Example,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
    narrow: bool = False,
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> _Example: ...
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
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: None = None,
) -> Any: ...
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
    dtype: _DType | None = None,
    shape: Iterable[SupportsIndex] | None = None,
    out: _Array,
) -> _Array: ...
def asdlpack(
    src: object,
    *,
    device: _Device | None = None,
    copy: bool | None = None,
    stream: _Stream | None = None,
    readonly: _Readonly = "copy",
    detach: bool = False,
) -> Tensor:
    """Wrap any array in a :class:`Tensor`, which every library can consume.

    Parameters
    ----------
    src, device, copy, detach
        As for :func:`convert`.
    stream : int or stream object, optional
        The stream on which the memory will be used. None leaves that to the consumers: each names its own stream, or
        means the legacy default one. Host memory has no stream.
    readonly : {"copy", "share", "error"}
        What a legacy capsule of the Tensor does with read-only memory, since such a capsule has no flags. The Tensor
        itself and its versioned capsules share the memory and flag it as read-only.

    Returns
    -------
    Tensor
        It shares the memory of src and keeps it alive, unless a copy was needed (bytes in the other order, strides that
        are not multiples of the item size) or asked for. A Tensor is returned as it is.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> tensor = dlbridge.asdlpack(b"Hello!")
    >>> numpy.from_dlpack(tensor).tobytes(), tensor.readonly
    (b'Hello!', True)
    """
def from_dlpack(x: object, /, *, device: _Device | None = None, copy: bool | None = None) -> Tensor:
    """The array API standard's function: a :class:`Tensor` over the memory of ``x``.

    Parameters
    ----------
    x : object
        As for :func:`asdlpack`: arrays without ``__dlpack__`` and capsules are taken too.
    device, copy
        As in the standard, and as for :func:`convert`.

    Returns
    -------
    Tensor
        It shares the memory of x and keeps it alive, unless a copy was needed or asked for.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> dlbridge.from_dlpack(numpy.arange(3)).shape
    (3,)
    """
def to_dlpack(
    src: object,
    *,
    stream: _Stream | None = None,
    max_version: tuple[int, int] | None = None,
    readonly: _Readonly = "copy",
) -> CapsuleType:
    """Put any array into a DLPack capsule, for one consumer.

    Parameters
    ----------
    src : object
        As for :func:`convert`.
    stream : int or stream object, optional
        The consumer's stream.
    max_version : tuple of int, optional
        From ``(1, 0)`` on the capsule is a "dltensor_versioned", which flags read-only memory; otherwise it is a
        "dltensor".
    readonly : {"copy", "share", "error"}
        What to do with read-only memory in a "dltensor", which cannot flag it.

    Returns
    -------
    PyCapsule
        It shares the memory of src and keeps it alive until its consumer releases it.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> capsule = dlbridge.to_dlpack(numpy.zeros(3))
    >>> dlbridge.convert(capsule, "numpy").sum()
    np.float64(0.0)
    """
def target_name(to: object, imported: bool = True) -> str: ...
def check_keywords(function: str, keywords: dict[str, Any]) -> None: ...

OPTIONS: Final[tuple[str, ...]]
OF_TREES: Final[tuple[str, ...]]
