"""Libraries with the C exchange API on their type: torch, Paddle."""

from dlbridge.targets.target cimport Target


cdef Target new_torch()
cdef Target new_paddle()
