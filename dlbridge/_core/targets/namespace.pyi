"""Any namespace with ``from_dlpack``, and targets that users register."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

UNKNOWN: str
