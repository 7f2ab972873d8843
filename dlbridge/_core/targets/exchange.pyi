"""Libraries with the C exchange API on their type: torch, Paddle."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

NAMES: tuple[str, ...]
