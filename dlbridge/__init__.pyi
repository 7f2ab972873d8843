"""Any array in, any array out: without copying, at the speed of a C call, and never a crash."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Never, SupportsIndex, TypeVar, overload

import numpy
from typing_extensions import CapsuleType, disjoint_base

from dlbridge.convert import (
    DLPACK_VERSION,
    _Device,
    _DType,
    _Readonly,
    _Stream,
    _To,
    asdlpack,
    convert,
    from_dlpack,
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
from dlbridge.face import get_include
from dlbridge.pointer import from_pointer
from dlbridge.trees import accepts, collate, convert_tree, prefetch

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
    "explain",
    "from_dlpack",
    "from_pointer",
    "get_include",
    "prefetch",
    "register_container",
    "register_source",
    "register_target",
    "targets",
    "to_dlpack",
]

__version__: str
_C_API: CapsuleType

class _Exporter:
    # The buffer protocol. Python shows it as a method from 3.12 on only.
    def __buffer__(self, flags: int, /) -> memoryview: ...

@disjoint_base
class Tensor(_Exporter):
    """Memory of any library, described once and offered through every protocol.

    :func:`dlbridge.asdlpack` makes it; the class cannot be called. It shares the source's memory and keeps it alive. It
    can be consumed any number of times, by any number of consumers. It computes nothing.

    Attributes
    ----------
    shape : tuple of int
        The extents of the axes.
    strides : tuple of int
        The steps of the axes, in elements.
    ndim : int
        The number of axes.
    size : int
        The number of elements.
    itemsize : int
        The bytes of one element; 0 for packed elements below a byte.
    nbytes : int
        The bytes of all elements, without gaps.
    dtype : numpy.dtype or str
        The dtype, by ml_dtypes where NumPy has none (``bfloat16``). It is equal to its name. It is the name alone where
        ml_dtypes is not installed or has no such type, and for packed elements.
    device : str
        The device as ``device=`` takes it: ``"cpu"``, ``"cuda:1"``.
    pickled_on : str
        The device on which the memory was before it was pickled, since a pickle is always unpickled on the host.
        Otherwise the same as ``device``.
    readonly : bool
        Whether the source flagged the memory as read-only.
    data_ptr : int
        The address of the first element, ``byte_offset`` included.
    byte_offset : int
        The bytes from the handle of the memory to the first element; 0 on devices whose memory has addresses.
    protocol : str
        The protocol by which the memory came.
    owner : object
        The object that keeps the memory alive, or None if that is not a Python object.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> tensor = dlbridge.asdlpack(numpy.zeros((3, 4), "float32"))
    >>> tensor.shape, tensor.dtype, tensor.protocol
    ((3, 4), dtype('float32'), 'numpy')
    >>> numpy.from_dlpack(tensor).ctypes.data == tensor.data_ptr
    True
    """

    __dlpack_c_exchange_api__: ClassVar[CapsuleType]

    # The argument's type has no values, since only asdlpack() makes a Tensor.
    def __init__(self, use_asdlpack: Never, /, *args: Never, **kwargs: Never) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the axes."""
    @property
    def strides(self) -> tuple[int, ...]:
        """The steps of the axes, in elements."""
    @property
    def ndim(self) -> int:
        """The number of axes."""
    @property
    def size(self) -> int:
        """The number of elements."""
    @property
    def itemsize(self) -> int:
        """Bytes of one element; 0 for packed elements below a byte."""
    @property
    def nbytes(self) -> int:
        """The bytes of all elements, without gaps."""
    @property
    def dtype(self) -> numpy.dtype[Any] | str:
        """The dtype, by ml_dtypes where NumPy has none (``bfloat16``). It is equal to its name. It is the name alone where
        ml_dtypes is not installed or has no such type, and for packed elements.
        """
    @property
    def device(self) -> str:
        """The device as ``device=`` takes it: ``"cpu"``, ``"cuda:1"``."""
    @property
    def pickled_on(self) -> str:
        """The device on which the memory was before it was pickled, since a pickle is always unpickled on the host.
        Otherwise the same as ``device``.
        """
    @property
    def readonly(self) -> bool:
        """Whether the source flagged the memory as read-only."""
    @property
    def data_ptr(self) -> int:
        """The address of the first element, ``byte_offset`` included."""
    @property
    def byte_offset(self) -> int:
        """The bytes from the handle of the memory to the first element; 0 on devices whose memory has addresses."""
    @property
    def protocol(self) -> str:
        """The protocol by which the memory came."""
    @property
    def owner(self) -> object:
        """The object that keeps the memory alive, or None if that is not a Python object."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, numpy.dtype[Any]]: ...
    def ravel(self) -> numpy.ndarray[Any, numpy.dtype[Any]]:
        """The elements in one axis, as an ndarray; zarr asks arrays for it."""
    @property
    def ctypes(self) -> Any:
        """The address as an ndarray has it; safetensors asks arrays for it, and reads on from there."""
    def _repr_html_(self) -> str: ...
    def __sizeof__(self) -> int: ...
    def __copy__(self) -> Tensor: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]: ...
    def __dask_tokenize__(self) -> tuple[Any, ...]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
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
    """What :func:`dlbridge.convert` would do with the same arguments, and why.

    Attributes
    ----------
    action : str
        ``"return"`` (src itself), ``"share"``, ``"copy"`` or ``"refuse"``.
    source, protocol : str
        The type of src, and the protocol by which it was read.
    target : str
        The target's name.
    reason, hint : str
        Why the memory is not simply shared, and what would change that; empty where there is nothing to say.
    dtype, device : str
    shape, strides : tuple of int or None
        None where src was not looked into. ``strides_unit`` is "elements", or "bytes" where a stride is not a multiple
        of the item size.
    nbytes : int
    readonly : bool
    """

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

    def _repr_html_(self) -> str: ...

def explain(
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
    out: object = None,
) -> Plan:
    """Say what ``convert(src, to, …)`` would do, without doing it.

    Nothing is copied, a capsule is looked at and not consumed, and a producer is asked as ``convert`` would ask it,
    so the two cannot disagree. The values are not looked at, so ``narrow`` may still find one that does not fit. An
    Arrow stream has to be read for that: an object that gives its stream only once cannot be converted afterwards.

    Parameters
    ----------
    src, to, device, copy, stream, readonly, detach, narrow, dtype, shape, out
        As for :func:`dlbridge.convert`.

    Returns
    -------
    Plan
        It prints as a few lines of text. A conversion that ``convert`` would refuse with one of dlbridge's errors has
        the action ``"refuse"``; what a producer itself raises passes through.

    Raises
    ------
    TypeError, ValueError
        A keyword has a value that it does not take.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> print(dlbridge.explain(numpy.zeros((2, 3), ">f4"), "dlbridge"))
    numpy.ndarray -> dlbridge: copy
      source   by numpy
      memory   float32 (2, 3), 24 bytes, writable, on cpu
      strides  (3, 1) in elements
      because  byte order is not this machine's, and dlbridge has no other
      hint     pass x.astype(x.dtype.newbyteorder("="))
    """

_Source = TypeVar("_Source")
_Container = TypeVar("_Container")

@overload
def register_source(
    type_or_predicate: type[_Source], acquire: Callable[[_Source], object], *, readonly: bool | None = None,
) -> None:
    """Teach dlbridge to take a type.

    Parameters
    ----------
    type_or_predicate : type or callable
        The type, subclasses included, or ``predicate(type) -> bool``. The source that was registered last is asked
        first, before any protocol that the type has.
    acquire : callable
        ``acquire(obj)`` gives anything that dlbridge takes: an object with ``__dlpack__``, a DLPack capsule, an array.
        It must keep the memory alive.
    readonly : bool, optional
        Whether the memory is read-only, where a producer does not say so: a legacy DLPack capsule cannot. True: it is,
        whatever gives it. False: memory of a legacy capsule is not, which you promise. By default dlbridge concludes it
        from the library that made the capsule, and takes what it knows nothing of as writable.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> class Image:
    ...     pixels = numpy.zeros((2, 2), "uint8")
    >>> dlbridge.register_source(Image, lambda image: image.pixels)
    >>> dlbridge.convert(Image(), "numpy").shape
    (2, 2)
    """
@overload
def register_source(
    type_or_predicate: Callable[[type[Any]], bool], acquire: Callable[[Any], object], *, readonly: bool | None = None,
) -> None: ...
def register_container(
    type: type[_Container],
    flatten: Callable[[_Container], dict[Any, Any] | Sequence[Any]],
    unflatten: Callable[[_Container, Any], _Container],
) -> None:
    """Teach :func:`convert_tree` and :func:`accepts` a class whose objects hold arrays.

    Parameters
    ----------
    type : type
        The class, subclasses included. What is registered for the nearest class counts.
    flatten : callable
        ``flatten(container)`` gives what is in a container: a dictionary, whose keys say in errors where a leaf is, or
        a list or a tuple. Its values may be arrays, containers and anything else.
    unflatten : callable
        ``unflatten(container, parts)`` gives a container of the same form, with ``parts`` in place of what flatten
        gave: a dictionary with the same keys, or a list. It must not change the container that it is given.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> class Graph:
    ...     def __init__(self, nodes, edges):
    ...         self.nodes, self.edges = nodes, edges
    >>> dlbridge.register_container(Graph, vars, lambda graph, parts: Graph(**parts))
    >>> graph = Graph(numpy.zeros((3, 2)), numpy.array([[0, 1], [1, 2]]))
    >>> dlbridge.convert_tree({"graph": graph}, "memoryview")["graph"].edges.tolist()
    [[0, 1], [1, 2]]
    """
def register_target(
    name: str,
    deliver: Callable[[Tensor], object],
    *,
    array_type: type[Any] | tuple[type[Any], ...] | None = None,
    supports: Iterable[Literal["NEGATIVE_STRIDES", "READ_ONLY", "PACKED", "PADDED"]] = (),
    dtypes: Iterable[str] | None = None,
    alignment: int = 1,
    replace: bool = False,
) -> None:
    """Teach dlbridge to make a library's arrays.

    Parameters
    ----------
    name : str
        The name in ``convert(src, to=name)``. It replaces a target that was registered by that name.
    deliver : callable
        ``deliver(tensor)`` gives the library's array from a :class:`Tensor`, commonly the library's ``from_dlpack``.
    array_type : type or tuple of types, optional
        The type of the library's arrays. Instances are returned as they are.
    supports : iterable of str
        What the library supports beyond compact, writable, native-endian memory on the host: any of
        "NEGATIVE_STRIDES", "READ_ONLY" (it heeds the flag), "PACKED" and "PADDED". Other memory is copied for it.
    dtypes : iterable of str, optional
        The names of the dtypes that the library has; None for all.
    alignment : int
        The alignment of the first element, in bytes, that the library needs in order to share: a power of two up to
        256, which is the alignment of copies.
    replace : bool
        Whether it replaces a target that dlbridge has itself, such as "torch".

    Examples
    --------
    >>> import numpy, dlbridge
    >>> dlbridge.register_target("total", lambda tensor: float(numpy.from_dlpack(tensor).sum()))
    >>> dlbridge.convert(b"abc", "total")
    294.0
    """
def targets() -> list[str]:
    """The names that ``to`` takes, whether or not the libraries are installed.

    Examples
    --------
    >>> import dlbridge
    >>> "numpy" in dlbridge.targets() and "torch" in dlbridge.targets()
    True
    """
