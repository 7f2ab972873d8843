"""The arrays in a container, one after the other, without a call of Python between them."""

from collections.abc import Callable, Iterable
from typing import Any

class Plainly:
    def __init__(self, to: object, failed: Callable[[Any, Any], Any]) -> None: ...
    def __call__(self, leaf: object, memo: dict[int, tuple[Any, Any]]) -> Any: ...

def has_numbers(obj: object) -> bool: ...
def give_values(
    take: dict[int, Callable[[Any, Any], Any]], values: Iterable[Any], memo: dict[int, tuple[Any, Any]],
    walk: Callable[[Any, Any, Any], Any],
) -> list[Any]: ...
