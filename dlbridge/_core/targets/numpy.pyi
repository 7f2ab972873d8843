"""numpy.ndarray, through NumPy's C API."""

from typing_extensions import CapsuleType

from dlbridge._core.dtypes import NAMES as NAMES

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
