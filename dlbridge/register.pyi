"""Sources, targets and containers that users add; described in the package's own stub."""

from collections.abc import Iterable

from dlbridge import register_container as register_container
from dlbridge import register_form as register_form
from dlbridge import register_source as register_source
from dlbridge import register_target as register_target
from dlbridge import targets as targets

__test__: dict[str, str]

NAMES: tuple[str, ...]
SUPPORTED: tuple[str, ...]
ALIGNMENTS: tuple[int, ...]

def known(call: str, field: str, given: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]: ...
