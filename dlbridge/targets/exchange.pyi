"""Libraries with the C exchange API on their type: torch."""

from typing import Final

TORCH_DTYPES: Final[tuple[str, ...]]
