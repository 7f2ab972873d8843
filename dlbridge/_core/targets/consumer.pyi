"""Calling a target library, and putting its errors into dlbridge's words."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

UNTOUCHED: Final[tuple[type[Exception], ...]]
