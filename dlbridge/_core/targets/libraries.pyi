"""Libraries that take arrays through a function of their own: a row for each."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

class Library(NamedTuple):
    name: str
    module: str
    install: str
    importer: str
    array_type: str
    capsules: bool = ...
    start: Callable[[Any], None] | None = ...
    gpus: Callable[[Any], int] | None = ...
    upload_type: int = ...

LIBRARIES: Final[tuple[Library, ...]]
