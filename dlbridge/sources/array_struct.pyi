"""``__array_struct__``: NumPy's C structure in a capsule without a name."""
