"""dlbridge.Tensor itself, and a memoryview over one."""

from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1
cdef int prepare_memoryview(Target target) except -1
