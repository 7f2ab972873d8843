"""What is known of releases of device memory that waited, or could not be ordered."""

from dlbridge._core.devices.streams import unordered_releases, waiting_releases

__all__ = ["unordered_releases", "waiting_releases"]
