"""JAX arrays, through JAX's own importer."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

NAMES: tuple[str, ...]
WIDE_DTYPES: Final[dict[str, str]]
