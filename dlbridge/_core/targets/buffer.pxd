"""A memoryview, over a Tensor."""

from dlbridge._core.targets.target cimport Target


cdef Target new_target()
