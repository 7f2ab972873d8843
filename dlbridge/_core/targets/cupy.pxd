"""cupy.ndarray, through CuPy's own importer."""

from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1
