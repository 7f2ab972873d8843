"""Tensor: one Managed that speaks every protocol; described in the package's own stub."""

from typing import Any

from typing_extensions import CapsuleType

from dlbridge import Tensor as Tensor

def by_value(tensor: Tensor, protocol: int) -> tuple[Any, ...]: ...
def tensor_over(
    exporter: object, offset_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, padded: bool,
    readonly: bool,
) -> Tensor: ...

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
