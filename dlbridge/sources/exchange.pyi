"""The C exchange API: a table of C functions on the type (torch, cuda.core, dlbridge's own Tensor)."""

from typing import Final

ALLOWED: Final[tuple[tuple[str, str], ...]]
