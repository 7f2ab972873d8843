"""from_pointer(): memory that a foreign library gives as an address."""

from collections.abc import Iterable
from typing import Any, SupportsIndex

from dlbridge import Tensor
from dlbridge.convert import _Device, _Stream

__test__: dict[str, str]

def from_pointer(
    address: SupportsIndex,
    shape: Iterable[SupportsIndex],
    dtype: Any,
    *,
    strides: Iterable[SupportsIndex] | None = None,
    device: _Device = "cpu",
    readonly: bool = False,
    owner: object = None,
    stream: _Stream | None = None,
) -> Tensor: ...
