"""The sources: a file for each protocol, with ``offers(kind, facts)`` and ``acquire(obj, offer, request)``."""
