"""Offer: what one protocol found out about a type, once, so that every acquire of that type is a plain call."""

from typing_extensions import CapsuleType, disjoint_base

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]


@disjoint_base
class Offer:
    @property
    def protocol(self) -> str: ...
