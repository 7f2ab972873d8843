"""A DLPack capsule."""

from dlbridge._core.targets.target cimport Target


cdef int prepare_legacy(Target target) except -1
cdef int prepare_versioned(Target target) except -1
