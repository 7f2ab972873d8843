"""The C exchange API: a table of C functions on the type (torch, Paddle, cuda.core, dlbridge's own Tensor)."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

ALLOWED: Final[tuple[tuple[str, str], ...]]
NAMES_STREAM: Final[set[str]]
GRADIENT_FREE: Final[dict[str, str]]
