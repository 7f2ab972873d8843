"""The order in which sources are asked, and the sources that users add."""

from collections.abc import Callable
from typing import Any, Final

from dlbridge.sources.offer import Offer

PREFERRED: Final[dict[tuple[str, str], str]]
WAYS_OUT: Final[dict[tuple[str, str], str]]
registered: list[tuple[Callable[[type[Any]], bool], Offer]]

def add_source(accepts: Callable[[type[Any]], bool], function: Callable[[Any], object]) -> None: ...
