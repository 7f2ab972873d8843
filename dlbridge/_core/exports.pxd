"""Exports: what a consumer of each protocol is given of memory that a block has."""

from libc.stdint cimport int64_t

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport ReadonlyPolicy, Request
from dlbridge._core.target cimport Target


# What a capsule, an array of Arrow or a pickle supports, by its name in libraries/dlpack.
cdef Target consumer_named(str name)
cdef Managed* copied_where_it_is(Managed* base) except NULL

# A capsule for a consumer that asks for more than the memory as it is, or that takes legacy capsules only.
cdef object export_capsule(
    Managed* base, ReadonlyPolicy policy, bint versioned, object stream, object dl_device, object copy)
# A new block over device memory. The legacy default stream waits until that memory is ready.
cdef Managed* in_default_order(Managed* base) except NULL
# A new block, for which the consumer's stream waits.
cdef Managed* shared_for(Managed* base, const Request* request) except NULL
# The dictionaries of __array_interface__ and __cuda_array_interface__, version 3. Memory that they cannot describe
# raises AttributeError, so that hasattr() is False.
cdef dict array_interface(Managed* managed)
cdef dict cuda_interface(Managed* managed)
cdef object no_face(str face, const Managed* managed)
# NumPy's C structure in a capsule without a name. The capsule's context is a block that keeps the memory.
cdef object new_array_struct(Managed* base)
# The pair of capsules that __arrow_c_array__ returns.
cdef object arrow_capsules(Managed* base, ReadonlyPolicy policy)
cdef int fill_buffer(Py_buffer* view, Managed* managed, int flags) except -1

# ---- pickles

# The memory that a pickle describes: on the host, and touching no more bytes than its elements have.
cdef Managed* picklable(Managed* base) except NULL
# A flat block over the bytes of a picklable one, and where its first element is in them. managed is stolen.
cdef Managed* flattened(Managed* managed, int64_t* offset_bytes) except NULL
# A block over received bytes. It is read-only if they are, and holds them.
cdef Managed* unpickled(
    object received, int64_t offset_bytes, tuple shape, tuple strides, str dtype, bint padded,
) except NULL
# Describes elements that are among the bytes which a block owns; managed is stolen.
cdef Managed* described_in(
    Managed* managed, char* begin, int64_t length, int64_t offset_bytes, tuple shape, tuple strides, str dtype,
    bint padded,
) except NULL
