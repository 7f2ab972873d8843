"""numpy.ndarray and its subclasses, through NumPy's C API."""
