"""Capsules over a Managed: what travels from a producer to a consumer, of DLPack, and of Arrow's C data interface."""

from cpython.pycapsule cimport PyCapsule_Destructor

from dlbridge._core.block cimport Managed


# All of them steal managed, also when they fail.
cdef object new_versioned_capsule(Managed* managed)
cdef object new_legacy_capsule(Managed* managed)
cdef object new_capsule(Managed* managed, void* pointer, const char* name, PyCapsule_Destructor destructor)

# Of the capsules that are bases of ndarrays: their pointer is to the block.
cdef const char* OWNER_NAME

# ---- Arrow

# Whether memory is an array of Arrow, but for its layout: of numbers, with one axis, and the host's.
cdef bint has_arrow_form(const Managed* managed) except -1

# The pair of capsules that __arrow_c_array__ returns, of compact numbers with one axis; managed is stolen.
cdef object new_arrow_capsules(Managed* managed)

# A capsule of a struct that was released, until it is filled; and what then releases it, unless somebody took it.
cdef object new_struct(size_t size, const char* name, PyCapsule_Destructor destructor)
cdef void destroy_schema(object capsule) noexcept
cdef void destroy_array(object capsule) noexcept
