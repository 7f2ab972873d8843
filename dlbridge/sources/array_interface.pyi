"""``__array_interface__`` of version 3, whose ``data`` is an address, a buffer or absent, and version 2's attributes."""
