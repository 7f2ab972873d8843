"""pyarrow's: an Array where there is one axis, else a Tensor."""

from typing_extensions import CapsuleType

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
