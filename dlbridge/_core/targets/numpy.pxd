"""numpy.ndarray, through NumPy's C API."""

from dlbridge._core.block cimport Managed
from dlbridge._core.target cimport Target


cdef object deliver(Managed* managed, Target target)
