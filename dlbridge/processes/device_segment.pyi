"""Segments of a device's memory, and the Tensors over them. Those are ready on dlbridge's own stream of the device."""

from collections.abc import Callable

from typing_extensions import disjoint_base

from dlbridge import Tensor
from dlbridge.processes.segment import Segment

@disjoint_base
class DeviceSegment(Segment):
    def as_sent(self) -> tuple[bytes, int, bytes]: ...
    def arrived(self, identity: bytes, nbytes: int, uuid: bytes) -> Segment: ...
    @property
    def tensor_over(self) -> Callable[..., Tensor]: ...

def tensor_on_device(
    segment: DeviceSegment, offset_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str,
    padded: bool, readonly: bool,
) -> Tensor: ...
def zeros_there(shape: object, dtype: object, device: object) -> Tensor: ...
def fills_granule(tensor: Tensor, device: object) -> bool: ...
def shared_copy(tensor: Tensor, device: object, readonly: bool) -> Tensor: ...

__test__: dict[str, str]
