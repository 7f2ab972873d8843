"""The order in which sources are asked, and the sources that users add."""

from collections.abc import Callable
from typing import Any, Final

from typing_extensions import CapsuleType

from dlbridge._core.sources.offer import Offer

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

PREFERRED: Final[dict[tuple[str, str], str]]
FUNCTIONS: Final[dict[tuple[str, str], str]]
WAYS_OUT: Final[dict[tuple[str, str], str]]
registered: list[tuple[Callable[[type[Any]], bool], Offer]]

def add_source(accepts: Callable[[type[Any]], bool], function: Callable[[Any], object]) -> None: ...
