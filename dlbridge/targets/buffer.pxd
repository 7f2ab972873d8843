"""A memoryview, over a Tensor."""

from dlbridge.targets.target cimport Target


cdef Target new_target()
