"""The calling convention of convert() and asdlpack()."""

from typing import Any, Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

def check_keywords(function: str, own: tuple[str, ...], keywords: dict[str, Any]) -> None: ...

OPTIONS: Final[tuple[str, ...]]
OF_TREES: Final[tuple[str, ...]]
