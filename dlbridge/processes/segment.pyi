"""Segments: memory of the host with a descriptor, by which other processes can map it, and the Tensors over it."""

from typing import Any

from typing_extensions import disjoint_base

from dlbridge import Tensor

@disjoint_base
class Segment:
    nbytes: int
    descriptor: int
    identity: bytes
    @property
    def is_constant(self) -> bool: ...

@disjoint_base
class Sendable:
    def in_segment(self) -> tuple[Any, ...]: ...

def segment_from(descriptor: int, identity: bytes, nbytes: int) -> Segment: ...
def shared_zeros(shape: object, dtype: object) -> Tensor: ...
def is_on_host(tensor: Tensor) -> bool: ...
def is_shared(tensor: Tensor, constant: bool) -> bool: ...
def shared_copy(tensor: Tensor, readonly: bool) -> Tensor: ...

__test__: dict[str, str]
