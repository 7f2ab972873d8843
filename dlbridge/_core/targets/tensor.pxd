"""dlbridge's own: a Tensor, a memoryview over one, and DLPack capsules."""

from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1
cdef int prepare_memoryview(Target target) except -1
cdef int prepare_legacy(Target target) except -1
cdef int prepare_versioned(Target target) except -1
