"""Batches: every array in a container, and every array that a function is called with."""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Literal, ParamSpec, Protocol, Self, TypeVar, overload

import numpy

from dlbridge.convert import _Device, _DLPackArray, _Readonly, _Stream, _To

_Key = TypeVar("_Key")
_Parameters = ParamSpec("_Parameters")
_Returned = TypeVar("_Returned", covariant=True)
_Like = TypeVar("_Like", bound=_DLPackArray)

# Their annotations say what the fields were before: a namedtuple, and the outputs of models in transformers.
class _HasFields(Protocol):
    @property
    def _fields(self) -> tuple[str, ...]: ...

class _OrderedDict(Protocol):
    def move_to_end(self, key: Any, last: bool = True) -> None: ...

class _LikeItsFirst(Protocol):
    """A function that gives its array to the library of the first that it was called with."""

    @overload
    def __call__(self, array: numpy.ndarray[Any, Any], /, *args: Any, **kwargs: Any) -> numpy.ndarray[Any, Any]: ...
    @overload
    def __call__(self, array: _Like, /, *args: Any, **kwargs: Any) -> _Like: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    # As a method, it is called without self.
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Self: ...

class _Prefetched(Iterator[Any]):
    def close(self) -> None: ...
    def __next__(self) -> Any: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, traceback: object) -> None: ...

def prefetch(
    batches: Iterable[Any], to: _To, *, depth: int = 2, others: Literal["pass", "raise"] = "pass",
    columns: Literal["raise", "pass"] = "raise", device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
) -> _Prefetched: ...

_Later = Callable[..., Coroutine[Any, Any, Any]]

class _ReturnsLike(Protocol):
    @overload
    def __call__(self, function: Callable[..., _DLPackArray], /) -> _LikeItsFirst: ...
    @overload
    def __call__(self, function: _Later, /) -> _Later: ...
    @overload
    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]: ...

class _OfAnyArray(Protocol[_Parameters, _Returned]):
    """A function as it was written, for editors to show; and one that takes arrays of any library in its arguments."""

    @overload
    def __call__(self, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Returned: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> _Returned: ...
    # As a method, it is called without self.
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Self: ...

class _Accepts(Protocol):
    def __call__(self, function: Callable[_Parameters, _Returned], /) -> _OfAnyArray[_Parameters, _Returned]: ...

@overload
def convert_tree(
    tree: _HasFields | _OrderedDict, to: _To, *, others: Literal["pass", "raise"] = "pass",
    columns: Literal["raise", "pass"] = "raise", device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
) -> Any: ...
@overload
def convert_tree(
    tree: dict[str, Any], to: _To, *, others: Literal["pass", "raise"] = "pass",
    columns: Literal["raise", "pass"] = "raise", device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
) -> dict[str, Any]: ...
@overload
def convert_tree(
    tree: dict[_Key, Any], to: _To, *, others: Literal["pass", "raise"] = "pass",
    columns: Literal["raise", "pass"] = "raise", device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
) -> dict[_Key, Any]: ...
@overload
def convert_tree(
    tree: list[Any], to: _To, *, others: Literal["pass", "raise"] = "pass", columns: Literal["raise", "pass"] = "raise",
    device: _Device | None = None, copy: bool | None = None, stream: _Stream | None = None,
    readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
) -> list[Any]: ...
@overload
def convert_tree(
    tree: tuple[Any, ...], to: _To, *, others: Literal["pass", "raise"] = "pass",
    columns: Literal["raise", "pass"] = "raise", device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
) -> tuple[Any, ...]: ...
@overload
def convert_tree(
    tree: deque[Any], to: _To, *, others: Literal["pass", "raise"] = "pass",
    columns: Literal["raise", "pass"] = "raise", device: _Device | None = None, copy: bool | None = None,
    stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
) -> deque[Any]: ...
@overload
def convert_tree(
    tree: Any, to: _To, *, others: Literal["pass", "raise"] = "pass", columns: Literal["raise", "pass"] = "raise",
    device: _Device | None = None, copy: bool | None = None, stream: _Stream | None = None,
    readonly: _Readonly = "copy", detach: bool = False, narrow: bool = False,
) -> Any: ...
def collate(samples: Sequence[Any]) -> Any: ...
@overload
def accepts(
    to: _To, *, returns: None = None, gradients: Literal[False] = False, device: _Device | None = None,
    copy: bool | None = None, stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False,
    narrow: bool = False,
) -> _Accepts: ...
@overload
def accepts(
    to: _To, *, returns: Literal["like"], gradients: Literal[False] = False, device: _Device | None = None,
    copy: bool | None = None, stream: _Stream | None = None, readonly: _Readonly = "copy", detach: bool = False,
    narrow: bool = False,
) -> _ReturnsLike: ...
@overload
def accepts(
    to: _To, *, returns: Literal["like"], gradients: Literal[True],
    vmap_method: Literal["sequential", "expand_dims", "broadcast_all"] = "sequential", device: _Device | None = None,
    copy: bool | None = None, stream: _Stream | None = None, readonly: _Readonly = "copy", narrow: bool = False,
) -> _ReturnsLike: ...
