"""What the caller asked for: the keywords of convert(), checked once and held as plain C."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
