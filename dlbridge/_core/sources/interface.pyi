"""What ``__array_interface__`` and ``__cuda_array_interface__`` have in common: the dictionary."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

REPORT: str
