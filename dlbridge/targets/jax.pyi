"""JAX arrays, through JAX's own importer."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

JAX_DTYPES: Final[tuple[str, ...]]
WIDE_DTYPES: Final[dict[str, str]]
COPIED_DTYPES: Final[tuple[str, ...]]
