"""JAX arrays, through JAX's own importer."""

from typing import Final

JAX_DTYPES: Final[tuple[str, ...]]
WIDE_DTYPES: Final[tuple[str, ...]]
COPIED_DTYPES: Final[tuple[str, ...]]
