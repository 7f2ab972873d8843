"""``__dlpack__``, and DLPack capsules themselves."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

MAX_VERSION: Final[tuple[int, int]]
CPU: Final[tuple[int, int]]
IMMUTABLE: Final[set[tuple[str, str]]]
NONE_IS_UNORDERED: Final[set[tuple[str, str]]]

REPORT: str
