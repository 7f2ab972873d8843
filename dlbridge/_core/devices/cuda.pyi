"""The drivers of CUDA and ROCm: a row for each, with the calls that dlbridge makes, looked up when first needed."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

def require_driver(device_type: int) -> None: ...

AFTER_FORK: str
FREE_SOME: str
LIBRARIES: Final[dict[str, tuple[str, ...]]]
def memory_of_device(device_type: int, device_id: int) -> int: ...
