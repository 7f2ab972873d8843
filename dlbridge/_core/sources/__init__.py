"""One file per source protocol, each with the same pair: ``offers(type)`` and ``acquire(obj, offer, request)``."""
