"""The targets by every name that ``to`` may have."""

from dlbridge._core.targets.target cimport Target


cdef Target find_target(object to)
cdef Target versioned_capsule()
