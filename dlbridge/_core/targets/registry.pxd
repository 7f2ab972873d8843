"""The targets, and how ``to`` names them."""

from dlbridge._core.targets.target cimport Target


cdef Target find_target(object to)
cdef Target versioned_capsule()
