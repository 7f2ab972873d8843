"""The targets by every name that ``to`` may have."""

from typing import Final

from typing_extensions import CapsuleType

from dlbridge._core.targets.target import Target

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

ALIASES: Final[dict[str, str]]

def names() -> list[str]: ...
def add_target(target: Target) -> None: ...
