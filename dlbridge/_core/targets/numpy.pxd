"""numpy.ndarray, through NumPy's C API."""

from dlbridge._core.managed cimport Managed
from dlbridge._core.targets.target cimport Target


cdef Target new_target()
cdef object deliver(Managed* managed, Target target)
