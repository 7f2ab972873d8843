"""The device table: a row per DLPack device type, by name and by what its memory is."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

TABLE: Final[dict[int, tuple[str, bool]]]
ALIASES: Final[dict[str, int]]
