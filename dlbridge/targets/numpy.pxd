"""numpy.ndarray, through NumPy's C API."""

from dlbridge.managed cimport Managed
from dlbridge.targets.target cimport Target


cdef Target new_target()
cdef object deliver(Managed* managed, Target target)
