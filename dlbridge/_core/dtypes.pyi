"""One table of dtypes: DLDataType, name, typestr, PEP 3118 format and NumPy type, in every direction."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

# name, DLPack code, bits, lanes, kind of typestr, PEP 3118 format
TABLE: Final[tuple[tuple[str, int, int, int, str, bytes | None], ...]]
NAMES: Final[tuple[str, ...]]
LETTERS: Final[dict[str, tuple[str, ...]]]
ARROW_LETTERS: Final[dict[str, str]]
NEAREST: Final[dict[str, str]]
