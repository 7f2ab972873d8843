"""Any array in, any array out: without copying, at the speed of a C call."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Never, SupportsIndex, TypeVar, overload

import numpy
from typing_extensions import CapsuleType, disjoint_base

from dlbridge.convert import (
    DLPACK_VERSION,
    asdlpack,
    convert,
    empty,
    from_dlpack,
    from_pointer,
    get_include,
    to_dlpack,
)
from dlbridge.errors import (
    ConversionError,
    CopyRequiredError,
    DeviceError,
    DeviceMemoryError,
    DLBridgeError,
    MissingLibraryError,
    UnsupportedError,
)
from dlbridge.processes import shared, shared_empty
from dlbridge.shards import from_shards, shards
from dlbridge.trees import accepts, collate, convert_tree, prefetch
from dlbridge.typing import Device, DType, Readonly, Stream, To
from dlbridge.watch import watch

__all__ = [
    "DLPACK_VERSION",
    "ConversionError",
    "CopyRequiredError",
    "DLBridgeError",
    "DeviceError",
    "DeviceMemoryError",
    "MissingLibraryError",
    "Plan",
    "Tensor",
    "UnsupportedError",
    "accepts",
    "asdlpack",
    "collate",
    "convert",
    "convert_tree",
    "empty",
    "explain",
    "from_dlpack",
    "from_pointer",
    "from_shards",
    "get_include",
    "prefetch",
    "register_container",
    "register_form",
    "register_source",
    "register_target",
    "shards",
    "shared",
    "shared_empty",
    "targets",
    "to_dlpack",
    "watch",
]

__version__: str

class _Exporter:
    # The buffer protocol. Python shows it as a method from 3.12 on only.
    def __buffer__(self, flags: int, /) -> memoryview: ...

@disjoint_base
class Tensor(_Exporter):
    __dlpack_c_exchange_api__: ClassVar[CapsuleType]

    # The argument's type has no values, since only asdlpack() makes a Tensor.
    def __init__(self, use_asdlpack: Never, /, *args: Never, **kwargs: Never) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def dtype(self) -> numpy.dtype[Any] | str: ...
    @property
    def device(self) -> str: ...
    @property
    def pickled_on(self) -> str: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def data_ptr(self) -> int: ...
    @property
    def byte_offset(self) -> int: ...
    @property
    def protocol(self) -> str: ...
    @property
    def owner(self) -> object: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, numpy.dtype[Any]]: ...
    def ravel(self) -> numpy.ndarray[Any, numpy.dtype[Any]]: ...
    @property
    def ctypes(self) -> Any: ...
    def _repr_html_(self) -> str: ...
    def __sizeof__(self) -> int: ...
    def __copy__(self) -> Tensor: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]: ...
    def __dask_tokenize__(self) -> tuple[Any, ...]: ...
    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    # Only some memory can be offered through these protocols. hasattr() says which.
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def __array_struct__(self) -> CapsuleType: ...
    @property
    def __arrow_c_array__(self) -> Callable[..., tuple[CapsuleType, CapsuleType]]: ...

class Plan(NamedTuple):
    action: Literal["return", "share", "copy", "refuse"]
    source: str
    target: str
    protocol: str = ""
    reason: str = ""
    hint: str = ""
    dtype: str = ""
    device: str = ""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    strides_unit: Literal["elements", "bytes"] = "elements"
    nbytes: int = 0
    readonly: bool = False
    steps: tuple[str, ...] = ()
    leaves: dict[str, Plan] = ...

    def in_a_line(self) -> str: ...
    def _repr_html_(self) -> str: ...

def explain(
    src: object, to: To, *, device: Device | None = None, copy: bool | None = None, stream: Stream | None = None,
    readonly: Readonly = "copy", detach: bool = False, narrow: bool = False, order: Literal["C"] | None = None,
    dtype: DType | None = None, shape: Iterable[SupportsIndex] | None = None, out: object = None,
) -> Plan: ...

_Source = TypeVar("_Source")
_Container = TypeVar("_Container")

@overload
def register_source(
    type_or_predicate: type[_Source], acquire: Callable[[_Source], object], *, readonly: bool | None = None,
) -> None: ...
@overload
def register_source(
    type_or_predicate: Callable[[type[Any]], bool], acquire: Callable[[Any], object], *, readonly: bool | None = None,
) -> None: ...
def register_form(
    form: Literal["csr", "csc", "bsr", "bsc", "coo", "ragged"], array_type: type[_Container],
    take_apart: Callable[[_Container], dict[str, Any]], put_together: Callable[..., _Container] | None = None, *,
    parts_of: str = "numpy", coordinates: Literal["each", "rows", "columns"] = "each",
    index_types: Iterable[Literal["int32", "int64"]] = (),
) -> None: ...
def register_container(
    type: type[_Container], flatten: Callable[[_Container], dict[Any, Any] | Sequence[Any]],
    unflatten: Callable[[_Container, Any], _Container],
) -> None: ...
def register_target(
    name: str, deliver: Callable[[Tensor], object], *, array_type: type[Any] | tuple[type[Any], ...] | None = None,
    supports: Iterable[Literal["NEGATIVE_STRIDES", "READ_ONLY", "PACKED", "PADDED"]] = (),
    dtypes: Iterable[str] | None = None, alignment: int = 1, order: Literal["C"] | None = None, replace: bool = False,
) -> None: ...
def targets() -> list[str]: ...
