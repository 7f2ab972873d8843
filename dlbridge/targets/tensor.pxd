"""dlbridge.Tensor itself."""

from dlbridge.targets.target cimport Target


cdef Target new_target()
