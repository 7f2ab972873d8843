"""What happens when device memory is released."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

def forget_waiting() -> None: ...
def unordered_releases() -> int: ...
def waiting_releases() -> int: ...
