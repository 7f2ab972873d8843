"""Segments: memory of the host with a descriptor, by which other processes can map it, and the Tensors over it."""

from typing import Any

from typing_extensions import CapsuleType

from dlbridge import Tensor

class Segment:
    nbytes: int
    descriptor: int
    identity: bytes
    @property
    def is_constant(self) -> bool: ...

class Sendable:
    def in_segment(self) -> tuple[Any, ...]: ...

def receive(memory: int, identity: bytes, nbytes: int) -> Segment: ...
def shared_zeros(shape: object, dtype: object) -> Tensor: ...
def is_shared(tensor: Tensor, constant: bool) -> bool: ...
def shared_copy(tensor: Tensor, readonly: bool) -> Tensor: ...

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]
