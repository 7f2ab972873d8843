"""Offer: what one protocol found out about a type, once, so that every acquire of that type is a plain call."""

class Offer:
    @property
    def protocol(self) -> str: ...
