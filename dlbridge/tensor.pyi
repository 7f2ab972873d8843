"""Tensor: one Managed that speaks every protocol; described in the package's own stub."""

from typing_extensions import CapsuleType

from dlbridge import Tensor as Tensor

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
