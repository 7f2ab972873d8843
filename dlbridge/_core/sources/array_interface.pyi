"""``__array_interface__`` of version 3 (``data``: an address, a buffer or absent), and version 2's attributes."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

REPORT: str
