"""Route: how a type reaches a target, cached. decide: share or copy, and why, from facts alone."""


from typing_extensions import CapsuleType, disjoint_base

from dlbridge._core.sources.offer import Offer
from dlbridge._core.targets.target import Target

__pyx_capi__: dict[str, CapsuleType]
__test__: dict[str, str]

@disjoint_base
class Route:
    @property
    def target(self) -> Target: ...
    @property
    def offers(self) -> list[Offer]: ...

def clear_routes() -> None: ...
