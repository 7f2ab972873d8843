"""A DLPack capsule."""

from dlbridge.targets.target cimport Target


cdef Target new_legacy()
cdef Target new_versioned()
