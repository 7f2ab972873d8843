"""Libraries with the C exchange API on their type: torch, Paddle."""

from dlbridge._core.targets.target cimport Target


cdef Target new_torch()
cdef Target new_paddle()
