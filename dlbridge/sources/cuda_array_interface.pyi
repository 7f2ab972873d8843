"""``__cuda_array_interface__``, versions 0 to 3."""
