"""Libraries with the C exchange API on their type: torch."""

from dlbridge.targets.target cimport Target


cdef Target new_torch()
