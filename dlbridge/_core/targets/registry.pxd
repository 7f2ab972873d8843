"""The targets, and how ``to`` names them."""

from dlbridge._core.target cimport Target


# The target may not be loaded yet: it then has a name, and supports nothing.
cdef Target find_target(object to)
cdef Target loaded_target(object to)
cdef object key_of(object to)
cdef Target versioned_capsule()
# A target without a file in dlbridge/libraries. It is given only what every library supports.
cdef Target new_unlisted(str name, object function)
