"""Shape arithmetic on plain arrays of int64: no objects, no GIL, no exception."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
