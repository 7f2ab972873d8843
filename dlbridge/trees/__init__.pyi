"""Batches: every array in a container, and every array that a function is called with."""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Generic, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

import numpy
from typing_extensions import Unpack

from dlbridge.typing import Array, Device, DLPackArray, Keywords, Readonly, Stream, To

_Others: TypeAlias = Literal["pass", "raise"]
_Columns: TypeAlias = Literal["raise", "pass"]
_Key = TypeVar("_Key")

# ---- trees -----------------------------------------------------------------------------------------------------------

# Their annotations say what the fields were before: a namedtuple, and the outputs of models in transformers.
class _HasFields(Protocol):
    @property
    def _fields(self) -> tuple[str, ...]: ...

class _OrderedDict(Protocol):
    def move_to_end(self, key: Any, last: bool = True) -> None: ...

@overload
def convert_tree(
    tree: _HasFields | _OrderedDict, to: To, *, others: _Others = "pass", columns: _Columns = "raise",
    **keywords: Unpack[Keywords],
) -> Any: ...
@overload
def convert_tree(
    tree: dict[str, Any], to: To, *, others: _Others = "pass", columns: _Columns = "raise",
    **keywords: Unpack[Keywords],
) -> dict[str, Any]: ...
@overload
def convert_tree(
    tree: dict[_Key, Any], to: To, *, others: _Others = "pass", columns: _Columns = "raise",
    **keywords: Unpack[Keywords],
) -> dict[_Key, Any]: ...
@overload
def convert_tree(
    tree: list[Any], to: To, *, others: _Others = "pass", columns: _Columns = "raise", **keywords: Unpack[Keywords],
) -> list[Any]: ...
@overload
def convert_tree(
    tree: tuple[Any, ...], to: To, *, others: _Others = "pass", columns: _Columns = "raise",
    **keywords: Unpack[Keywords],
) -> tuple[Any, ...]: ...
@overload
def convert_tree(
    tree: deque[Any], to: To, *, others: _Others = "pass", columns: _Columns = "raise", **keywords: Unpack[Keywords],
) -> deque[Any]: ...
@overload
def convert_tree(
    tree: Any, to: To, *, others: _Others = "pass", columns: _Columns = "raise", **keywords: Unpack[Keywords],
) -> Any: ...

class _Prefetched(Iterator[Any]):
    def close(self) -> None: ...
    def __next__(self) -> Any: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, traceback: object) -> None: ...

def prefetch(
    batches: Iterable[Any], to: To, *, depth: int = 2, others: _Others = "pass", columns: _Columns = "raise",
    **keywords: Unpack[Keywords],
) -> _Prefetched: ...
def collate(samples: Sequence[Any]) -> Any: ...

# ---- functions -------------------------------------------------------------------------------------------------------

# A call may be as the function was written; or with any array in the place of its first three arguments, and the rest
# as written; or with any arrays, and nothing else by name. So a keyword that the function does not have is an error.

_Written = ParamSpec("_Written")        # the parameters
_AfterOne = ParamSpec("_AfterOne")      # those after the first
_AfterTwo = ParamSpec("_AfterTwo")
_AfterThree = ParamSpec("_AfterThree")
_First = TypeVar("_First", contravariant=True)
_Second = TypeVar("_Second", contravariant=True)
_Third = TypeVar("_Third", contravariant=True)
_Returned = TypeVar("_Returned", covariant=True)
_Like = TypeVar("_Like", bound=DLPackArray)
_Ndarray: TypeAlias = numpy.ndarray[Any, Any]
_Later: TypeAlias = Coroutine[Any, Any, Any]

class _OfOne(Protocol[_Written, _AfterOne, _First, _Returned]):
    """A function with a parameter that may be passed by its place."""

    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: _First, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...

class _OfTwo(Protocol[_Written, _AfterOne, _AfterTwo, _First, _Second, _Returned]):
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: _First, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(
        self, first: _First, second: _Second, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Returned: ...

class _OfThree(Protocol[_Written, _AfterOne, _AfterTwo, _AfterThree, _First, _Second, _Third, _Returned]):
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: _First, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(
        self, first: _First, second: _Second, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Returned: ...
    @overload
    def __call__(
        self, first: _First, second: _Second, third: _Third, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> _Returned: ...

class _Wrapped:
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

class _OfArrays(_Wrapped, Generic[_Written, _Returned]):
    """What ``accepts`` makes of a function without such parameters."""

    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> _Returned: ...
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Self: ...

class _OfOneArray(_Wrapped, Generic[_Written, _AfterOne, _Returned]):
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> _Returned: ...
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Self: ...

class _OfTwoArrays(_Wrapped, Generic[_Written, _AfterOne, _AfterTwo, _Returned]):
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, second: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Returned: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> _Returned: ...
    def __get__(
        self, instance: object, owner: type[Any] | None = None, /,
    ) -> _MethodOfTwo[_Written, _AfterOne, _AfterTwo, _Returned]: ...

class _OfThreeArrays(_Wrapped, Generic[_Written, _AfterOne, _AfterTwo, _AfterThree, _Returned]):
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, second: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Returned: ...
    @overload
    def __call__(
        self, first: Any, second: Any, third: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> _Returned: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> _Returned: ...
    def __get__(
        self, instance: object, owner: type[Any] | None = None, /,
    ) -> _MethodOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _Returned]: ...

class _MethodOfTwo(Protocol[_Written, _AfterOne, _AfterTwo, _Returned]):
    """A function that is called without its first argument, unless it is a static method."""

    @overload
    def __call__(self, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Returned: ...
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> _Returned: ...

class _MethodOfThree(Protocol[_Written, _AfterOne, _AfterTwo, _AfterThree, _Returned]):
    @overload
    def __call__(self, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Returned: ...
    @overload
    def __call__(
        self, first: Any, second: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> _Returned: ...
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Returned: ...
    @overload
    def __call__(self, first: Any, second: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Returned: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> _Returned: ...

class _Accepts(Protocol):
    @overload
    def __call__(
        self, function: _OfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _First, _Second, _Third, _Returned], /,
    ) -> _OfThreeArrays[_Written, _AfterOne, _AfterTwo, _AfterThree, _Returned]: ...
    @overload
    def __call__(
        self, function: _OfTwo[_Written, _AfterOne, _AfterTwo, _First, _Second, _Returned], /,
    ) -> _OfTwoArrays[_Written, _AfterOne, _AfterTwo, _Returned]: ...
    @overload
    def __call__(
        self, function: _OfOne[_Written, _AfterOne, _First, _Returned], /,
    ) -> _OfOneArray[_Written, _AfterOne, _Returned]: ...
    @overload
    def __call__(self, function: Callable[_Written, _Returned], /) -> _OfArrays[_Written, _Returned]: ...

# ---- … that return what is like their first array --------------------------------------------------------------------

class _LikeItsArrays(_Wrapped, Generic[_Written, _Returned]):
    @overload
    def __call__(self: _LikeItsArrays[_Written, _Later], *args: _Written.args, **kwargs: _Written.kwargs) -> _Later: ...
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> Any: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> Any: ...
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Self: ...

class _LikeItsArray(_Wrapped, Generic[_Written, _AfterOne, _Returned]):
    @overload
    def __call__(
        self: _LikeItsArray[_Written, _AfterOne, DLPackArray], first: _Ndarray, /, *args: _AfterOne.args,
        **kwargs: _AfterOne.kwargs,
    ) -> _Ndarray: ...
    @overload
    def __call__(
        self: _LikeItsArray[_Written, _AfterOne, DLPackArray], first: _Like, /, *args: _AfterOne.args,
        **kwargs: _AfterOne.kwargs,
    ) -> _Like: ...
    @overload
    def __call__(
        self: _LikeItsArray[_Written, _AfterOne, _Later], first: Any, /, *args: _AfterOne.args,
        **kwargs: _AfterOne.kwargs,
    ) -> _Later: ...
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> Any: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> Any: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> Any: ...
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Self: ...

class _LikeTheFirstOfTwo(_Wrapped, Generic[_Written, _AfterOne, _AfterTwo, _Returned]):
    @overload
    def __call__(
        self: _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, DLPackArray], first: _Ndarray, /,
        *args: _AfterOne.args, **kwargs: _AfterOne.kwargs,
    ) -> _Ndarray: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, DLPackArray], first: _Ndarray, second: Any, /,
        *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Ndarray: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, DLPackArray], first: _Like, /, *args: _AfterOne.args,
        **kwargs: _AfterOne.kwargs,
    ) -> _Like: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, DLPackArray], first: _Like, second: Any, /,
        *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Like: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, _Later], first: Any, /, *args: _AfterOne.args,
        **kwargs: _AfterOne.kwargs,
    ) -> _Later: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, _Later], first: Any, second: Any, /,
        *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Later: ...
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> Any: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> Any: ...
    @overload
    def __call__(self, first: Any, second: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> Any: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> Any: ...
    @overload
    def __get__(
        self: _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, DLPackArray], instance: object,
        owner: type[Any] | None = None, /,
    ) -> _MethodLikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo]: ...
    @overload
    def __get__(
        self: _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, _Later], instance: object,
        owner: type[Any] | None = None, /,
    ) -> _MethodOfTwo[_Written, _AfterOne, _AfterTwo, _Later]: ...
    @overload
    def __get__(
        self, instance: object, owner: type[Any] | None = None, /,
    ) -> _MethodOfTwo[_Written, _AfterOne, _AfterTwo, Any]: ...

class _LikeTheFirstOfThree(_Wrapped, Generic[_Written, _AfterOne, _AfterTwo, _AfterThree, _Returned]):
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, DLPackArray], first: _Ndarray, /,
        *args: _AfterOne.args, **kwargs: _AfterOne.kwargs,
    ) -> _Ndarray: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, DLPackArray], first: _Ndarray,
        second: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Ndarray: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, DLPackArray], first: _Ndarray,
        second: Any, third: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> _Ndarray: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, DLPackArray], first: _Like, /,
        *args: _AfterOne.args, **kwargs: _AfterOne.kwargs,
    ) -> _Like: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, DLPackArray], first: _Like, second: Any,
        /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Like: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, DLPackArray], first: _Like, second: Any,
        third: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> _Like: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _Later], first: Any, /,
        *args: _AfterOne.args, **kwargs: _AfterOne.kwargs,
    ) -> _Later: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _Later], first: Any, second: Any, /,
        *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Later: ...
    @overload
    def __call__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _Later], first: Any, second: Any,
        third: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> _Later: ...
    @overload
    def __call__(self, *args: _Written.args, **kwargs: _Written.kwargs) -> Any: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> Any: ...
    @overload
    def __call__(self, first: Any, second: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> Any: ...
    @overload
    def __call__(
        self, first: Any, second: Any, third: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> Any: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> Any: ...
    @overload
    def __get__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, DLPackArray], instance: object,
        owner: type[Any] | None = None, /,
    ) -> _MethodLikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree]: ...
    @overload
    def __get__(
        self: _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _Later], instance: object,
        owner: type[Any] | None = None, /,
    ) -> _MethodOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _Later]: ...
    @overload
    def __get__(
        self, instance: object, owner: type[Any] | None = None, /,
    ) -> _MethodOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, Any]: ...

class _MethodLikeTheFirstOfTwo(Protocol[_Written, _AfterOne, _AfterTwo]):
    @overload
    def __call__(self, first: _Ndarray, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Ndarray: ...
    @overload
    def __call__(self, first: _Ndarray, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Ndarray: ...
    @overload
    def __call__(self, first: _Like, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Like: ...
    @overload
    def __call__(self, first: _Like, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Like: ...
    @overload
    def __call__(self, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> Any: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> Any: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> Any: ...

class _MethodLikeTheFirstOfThree(Protocol[_Written, _AfterOne, _AfterTwo, _AfterThree]):
    @overload
    def __call__(self, first: _Ndarray, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Ndarray: ...
    @overload
    def __call__(
        self, first: _Ndarray, second: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> _Ndarray: ...
    @overload
    def __call__(self, first: _Ndarray, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Ndarray: ...
    @overload
    def __call__(
        self, first: _Ndarray, second: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs,
    ) -> _Ndarray: ...
    @overload
    def __call__(self, first: _Like, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Like: ...
    @overload
    def __call__(
        self, first: _Like, second: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs,
    ) -> _Like: ...
    @overload
    def __call__(self, first: _Like, /, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> _Like: ...
    @overload
    def __call__(self, first: _Like, second: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> _Like: ...
    @overload
    def __call__(self, *args: _AfterOne.args, **kwargs: _AfterOne.kwargs) -> Any: ...
    @overload
    def __call__(self, first: Any, /, *args: _AfterTwo.args, **kwargs: _AfterTwo.kwargs) -> Any: ...
    @overload
    def __call__(self, first: Any, second: Any, /, *args: _AfterThree.args, **kwargs: _AfterThree.kwargs) -> Any: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Array) -> Any: ...

class _ReturnsLike(Protocol):
    @overload
    def __call__(
        self, function: _OfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _First, _Second, _Third, _Returned], /,
    ) -> _LikeTheFirstOfThree[_Written, _AfterOne, _AfterTwo, _AfterThree, _Returned]: ...
    @overload
    def __call__(
        self, function: _OfTwo[_Written, _AfterOne, _AfterTwo, _First, _Second, _Returned], /,
    ) -> _LikeTheFirstOfTwo[_Written, _AfterOne, _AfterTwo, _Returned]: ...
    @overload
    def __call__(
        self, function: _OfOne[_Written, _AfterOne, _First, _Returned], /,
    ) -> _LikeItsArray[_Written, _AfterOne, _Returned]: ...
    @overload
    def __call__(self, function: Callable[_Written, _Returned], /) -> _LikeItsArrays[_Written, _Returned]: ...

@overload
def accepts(
    to: To, *, returns: None = None, gradients: Literal[False] = False, callback: Literal[False] = False,
    others: _Others = "pass", columns: _Columns = "raise", **keywords: Unpack[Keywords],
) -> _Accepts: ...
@overload
def accepts(
    to: To, *, returns: Literal["like"], gradients: Literal[False] = False, callback: Literal[False] = False,
    others: _Others = "pass", columns: _Columns = "raise", **keywords: Unpack[Keywords],
) -> _ReturnsLike: ...
@overload
def accepts(
    to: To, *, returns: Literal["like"], callback: Literal[True] | Callable[..., Any],
    gradients: Literal[False] = False, others: _Others = "pass", columns: _Columns = "raise",
    vmap_method: Literal["sequential", "expand_dims", "broadcast_all"] = "sequential", **keywords: Unpack[Keywords],
) -> _ReturnsLike: ...
@overload
def accepts(
    to: To, *, returns: Literal["like"], gradients: Literal[True], callback: Literal[False] = False,
    others: _Others = "pass", columns: _Columns = "raise",
    vmap_method: Literal["sequential", "expand_dims", "broadcast_all"] = "sequential", device: Device | None = None,
    copy: bool | None = None, stream: Stream | None = None, readonly: Readonly = "copy", narrow: bool = False,
    order: Literal["C"] | None = None,
) -> _ReturnsLike: ...
