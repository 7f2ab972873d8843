"""The targets by every name that ``to`` may have."""

from typing import Final

from dlbridge.targets.target import Target

ALIASES: Final[dict[str, str]]

def names() -> list[str]: ...
def add_target(target: Target) -> None: ...
