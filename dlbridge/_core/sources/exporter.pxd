"""Whether the memory of a legacy DLPack capsule may be written, which the capsule does not say."""

from dlbridge._core.block cimport Managed


cdef enum Access:
    ACCESS_UNSAID
    ACCESS_READ_ONLY
    ACCESS_WRITABLE


# What the library of this deleter gives.
cdef Access access_by_deleter(const void* deleter) except? ACCESS_UNSAID
cdef void set_access(Managed* managed, Access access) noexcept
# Whether another protocol of the object gives the same memory, and says that it may be written.
cdef bint is_writable_elsewhere(object obj, const Managed* managed) except -1
