"""``__dlpack__``, and DLPack capsules themselves."""

from collections.abc import Callable
from typing import Any, Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

MAX_VERSION: Final[tuple[int, int]]
CPU: Final[tuple[int, int]]
IMMUTABLE: Final[set[tuple[str, str]]]
BOOLS_AS_BYTES: Final[dict[tuple[str, str], Callable[[Any], bool]]]
FORGETS: Final[set[tuple[str, str]]]
NONE_IS_UNORDERED: Final[set[tuple[str, str]]]

REPORT: str
