"""The targets, and how ``to`` names them."""

from dlbridge._core.targets.target cimport Target


# It may not be loaded: then it has a name, and supports nothing.
cdef Target find_target(object to)
cdef Target loaded_target(object to)
cdef Target versioned_capsule()
