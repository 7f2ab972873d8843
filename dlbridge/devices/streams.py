"""The number of hand-overs between streams that could not be ordered."""

from dlbridge._core.devices.streams import unordered_releases

__all__ = ["unordered_releases"]
