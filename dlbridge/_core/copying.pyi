"""Move elements between two layouts: plain addresses and steps, no objects, no GIL, no exception."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
def _set_split(above: int, part: int) -> tuple[int, int]: ...
