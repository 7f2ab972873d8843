"""Route: how a type reaches a target, cached. decide: share or copy, and why, from facts alone."""

from dlbridge.sources.offer import Offer
from dlbridge.targets.target import Target

class Route:
    @property
    def target(self) -> Target: ...
    @property
    def offers(self) -> list[Offer]: ...

def clear_routes() -> None: ...
