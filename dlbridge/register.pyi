"""Sources and targets that users add."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, overload

from dlbridge._core.dtypes import NAMES as NAMES
from dlbridge._core.targets.target import HOLDS as HOLDS
from dlbridge.tensor import Tensor

__test__: dict[str, str]

SAYABLE: tuple[str, ...]

def known(field: str, given: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]: ...

_Source = TypeVar("_Source")

@overload
def register_source(type_or_predicate: type[_Source], acquire: Callable[[_Source], object]) -> None: ...
@overload
def register_source(type_or_predicate: Callable[[type[Any]], bool], acquire: Callable[[Any], object]) -> None: ...
def register_target(
    name: str,
    deliver: Callable[[Tensor], object],
    *,
    array_type: type[Any] | tuple[type[Any], ...] | None = None,
    holds: Iterable[Literal["NEGATIVE_STRIDES", "READ_ONLY", "PACKED", "PADDED"]] = (),
    dtypes: Iterable[str] | None = None,
    alignment: int = 1,
) -> None: ...
def targets() -> list[str]: ...
