"""The fast paths for single libraries: NumPy's C API, what torch's tensors carry beside their memory, and libtorch."""
