"""Whether the memory of a legacy DLPack capsule is read-only, which the capsule does not say."""

from dlbridge._core.block cimport Managed


# Whether a deleter is of a library with immutable arrays.
cdef bint frees_immutable(const void* deleter) except -1
# Whether another protocol of the object gives the same memory, and says that it is read-only.
cdef bint is_read_only_elsewhere(object obj, const Managed* managed) except -1
