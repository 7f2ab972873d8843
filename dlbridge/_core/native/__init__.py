"""The fast paths that know a library by its C: NumPy's C API, torch's questions, libtorch."""
