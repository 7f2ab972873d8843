"""The buffer protocol, PEP 3118."""

from typing import final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

REPORT: str

@final
class HeldBuffer: ...
