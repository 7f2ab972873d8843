"""Arrow's C interfaces: ``__arrow_c_device_array__``, ``__arrow_c_array__``, and a stream of one chunk."""

from typing import Final

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

REPORT: str
WAYS_OUT: Final[dict[str, tuple[str, str]]]
LIBRARIES_WAYS_OUT: Final[dict[str, dict[str, str]]]
