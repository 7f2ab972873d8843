"""The device table: a row per DLPack device type, by name and by what its memory is."""

from typing import Final

TABLE: Final[dict[int, tuple[str, bool]]]
ALIASES: Final[dict[str, int]]
