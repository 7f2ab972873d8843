"""Capsules over a Managed: what travels from a producer to a consumer, of DLPack, and of Arrow's C data interface."""

from cpython.pycapsule cimport PyCapsule_Destructor

from dlbridge._core.block cimport Managed


# All of them steal managed, also when they fail.
cdef object new_versioned_capsule(Managed* managed)
cdef object new_legacy_capsule(Managed* managed)
cdef object new_capsule(Managed* managed, void* pointer, const char* name, PyCapsule_Destructor destructor)

# The name of the capsules that are bases of ndarrays. Their pointer is to the block.
cdef const char* OWNER_NAME

# ---- Arrow

# Whether memory can be an array of Arrow once it is compact: it is the host's, with one axis of numbers.
cdef bint has_arrow_form(const Managed* managed) except -1

# The pair of capsules that __arrow_c_array__ returns, of compact numbers with one axis; managed is stolen.
cdef object new_arrow_capsules(Managed* managed)

# A capsule of a zeroed struct, which counts as released until it is filled. The two functions below are destructors:
# they release the struct, unless a consumer took it.
cdef object new_struct(size_t size, const char* name, PyCapsule_Destructor destructor)
cdef void destroy_schema(object capsule) noexcept
cdef void destroy_array(object capsule) noexcept
