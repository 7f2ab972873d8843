"""Managed: own memory, describe it, validate it once, and let it go exactly once."""
