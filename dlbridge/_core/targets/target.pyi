"""Target: what a library can hold, as data, and how its array is made."""

from typing import Final

from typing_extensions import disjoint_base

from dlbridge._core.dtypes import NAMES as NAMES

__test__: dict[str, str]

HOLDS: Final[dict[str, int]]

@disjoint_base
class Target:
    @property
    def name(self) -> str: ...
    @property
    def library(self) -> str | None: ...
    @property
    def install(self) -> str | None: ...
    @property
    def loaded(self) -> bool: ...
