"""Managed: own memory, describe it, validate it once, and let it go exactly once."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

REPORT: str
