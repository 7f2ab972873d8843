"""``__array_struct__``: NumPy's C structure in a capsule without a name."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

REPORT: str
