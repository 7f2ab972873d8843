"""Modules that are imported with their first use."""

from typing import Any

def load_module(name: str) -> Any: ...
