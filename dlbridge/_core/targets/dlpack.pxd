"""A DLPack capsule."""

from dlbridge._core.targets.target cimport Target


cdef Target new_legacy()
cdef Target new_versioned()
