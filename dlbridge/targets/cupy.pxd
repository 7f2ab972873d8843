"""cupy.ndarray, through CuPy's own importer."""

from dlbridge.targets.target cimport Target


cdef Target new_target()
