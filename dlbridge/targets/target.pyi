"""Target: what a library can hold, as data, and how its array is made."""

from typing import Final

from dlbridge.dtypes import NAMES as NAMES

HOLDS: Final[dict[str, int]]

class Target:
    @property
    def name(self) -> str: ...
    @property
    def library(self) -> str | None: ...
    @property
    def install(self) -> str | None: ...
    @property
    def loaded(self) -> bool: ...
