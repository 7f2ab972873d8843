"""What ``__array_interface__`` and ``__cuda_array_interface__`` have in common: the dictionary."""
