"""``__dlpack__``, and DLPack capsules themselves."""

from typing import Final

MAX_VERSION: Final[tuple[int, int]]
CPU: Final[tuple[int, int]]
IMMUTABLE: Final[set[tuple[str, str]]]
