"""The capsules of Arrow's C data interface."""

from cpython.pycapsule cimport PyCapsule_Destructor

from dlbridge._core.block cimport Managed


# The pair of capsules that __arrow_c_array__ returns, of compact numbers with one axis; managed is stolen.
cdef object new_arrow_capsules(Managed* managed)

# A capsule of a struct that was released, until it is filled; and what then releases it, unless somebody took it.
cdef object new_struct(size_t size, const char* name, PyCapsule_Destructor destructor)
cdef void destroy_schema(object capsule) noexcept
cdef void destroy_array(object capsule) noexcept
