"""``__cuda_array_interface__``, versions 0 to 3."""

from collections.abc import Callable
from typing import Any

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

REPORT: str
DEFAULT_UNSAID: set[str]
REPEATS_UNSAID: set[str]
STREAM_OBJECTS: dict[str, Callable[[Any], Any]]
