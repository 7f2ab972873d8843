"""A memoryview over a Tensor."""

from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1
