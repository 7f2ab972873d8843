"""Offer: what one protocol found out about a type, once, so that every acquire of that type is a plain call."""

from typing_extensions import disjoint_base

__test__: dict[str, str]

def __reduce_cython__(self: object) -> None: ...
def __setstate_cython__(self: object, __pyx_state: object) -> None: ...

@disjoint_base
class Offer:
    @property
    def protocol(self) -> str: ...
