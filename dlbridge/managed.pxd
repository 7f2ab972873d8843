"""Managed: the one currency. Every source makes one, place takes one and gives one, every target consumes one."""

from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from dlbridge.abi cimport DLManagedTensor, DLManagedTensorVersioned, DLTensor, LegacyDeleter
from dlbridge.dtypes cimport get_row


cdef enum:
    MAX_NDIM = 64               # NumPy's and torch's

cdef enum Protocol:
    PROTOCOL_NUMPY
    PROTOCOL_EXCHANGE_API
    PROTOCOL_DLPACK
    PROTOCOL_DLPACK_LEGACY
    PROTOCOL_CUDA_ARRAY_INTERFACE
    PROTOCOL_ARRAY_STRUCT
    PROTOCOL_ARRAY_INTERFACE
    PROTOCOL_BUFFER
    PROTOCOL_DLBRIDGE


# What the memory is beyond a compact block of native words. DLPack has no word for the first four, which place resolves
# before anything travels; the others say what strides do (layout.Form). A target says which of them it holds.
cdef enum Mark:
    SWAPPED = 1             # the bytes of an element are in the other order
    BYTE_STRIDES = 2        # strides are in bytes, since one is no multiple of the item size
    NEGATED = 4             # every value stands for its negative (torch's negative bit)
    CONJUGATED = 8          # every value stands for its conjugate (torch's conjugate bit)


cdef enum State:
    LIVE = 0
    RELEASED = 1


ctypedef struct Managed

# Lets the owner go. Runs exactly once, from any thread, with or without the GIL, maybe with an exception pending.
ctypedef void (*Release)(Managed*) noexcept nogil

ctypedef struct Managed:
    DLManagedTensorVersioned abi    # first, so &managed.abi is what travels
    # These two follow abi.dl_tensor at once, and so end a legacy DLManagedTensor that begins there.
    void* legacy_manager_ctx
    LegacyDeleter legacy_deleter
    int32_t state                   # State, swapped atomically
    int32_t references              # atomic; the block is freed with the last one
    Managed* next                   # in the queue of those whose release waits
    Release release
    void* owner                     # a PyObject, a foreign block, malloc's memory; NULL for the Py_buffer below
    int64_t count                   # elements
    int64_t item_bytes              # of one element
    int64_t low_bytes               # of the first touched byte, relative to the first element: <= 0
    int64_t high_bytes              # one past the last touched byte
    int32_t row                     # of the dtype table
    uint32_t marks                  # Mark and layout.Form, or'ed
    Protocol protocol
    # int64 shape[ndim], strides[ndim] follow in the same block, then a Py_buffer where release_buffer is the release.


cdef Managed* managed_new(Protocol protocol, int64_t ndim) except NULL
cdef Managed* managed_take_buffer(Protocol protocol, Py_buffer* view) except NULL
cdef Managed* managed_from_tensor(Protocol protocol, const DLTensor* tensor, uint64_t flags) except NULL
cdef Managed* managed_take_versioned(Protocol protocol, DLManagedTensorVersioned* foreign) except NULL
cdef Managed* managed_share(Managed* base) except NULL
cdef Managed* managed_checked(Managed* managed) except NULL
cdef bint managed_set_compact(Managed* managed, const Py_ssize_t* shape) noexcept nogil
cdef void managed_set_layout(Managed* managed, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes) noexcept nogil

cdef inline void managed_set_row(Managed* managed, int32_t row) noexcept nogil:
    managed.row = row
    managed.item_bytes = get_row(row).item_bytes
    managed.abi.dl_tensor.dtype = get_row(row).dlpack

cdef void release_object(Managed* managed) noexcept nogil

cdef inline void managed_own_object(Managed* managed, object owner) noexcept:
    Py_INCREF(owner)
    managed.owner = <void*> owner
    managed.release = release_object

cdef void managed_own_memory(Managed* managed, void* memory) noexcept nogil
cdef void managed_own_versioned(Managed* managed, DLManagedTensorVersioned* foreign) noexcept nogil
cdef void managed_own_legacy(Managed* managed, DLManagedTensor* foreign) noexcept nogil

cdef Managed* managed_made_lendable(Managed* managed) noexcept nogil

cdef inline Managed* managed_lend(Managed* managed) noexcept nogil:
    """The block itself for one more consumer, whose deleter drops the reference that this takes."""
    managed_retain(managed)
    return managed

cdef void managed_release(Managed* managed) noexcept nogil
cdef void managed_retain(Managed* managed) noexcept nogil
cdef void managed_forget(Managed* managed) noexcept nogil

cdef object managed_unwrapped(Managed* managed)

cdef inline void managed_hold(Managed* managed) noexcept nogil:
    """A second reference to a block that nobody else has seen yet: no atomic step is needed."""
    managed.references += 1

cdef inline void managed_unhold(Managed* managed) noexcept nogil:
    """Drop that reference again while nobody else can be dropping one."""
    if managed.references == 2:
        managed.references = 1
    else:
        managed_forget(managed)

cdef inline char* managed_data(const Managed* managed) noexcept nogil:
    return <char*> managed.abi.dl_tensor.data + managed.abi.dl_tensor.byte_offset

cdef inline DLManagedTensor* managed_legacy(Managed* managed) noexcept nogil:
    return <DLManagedTensor*> &managed.abi.dl_tensor

cdef inline bint managed_packed(const Managed* managed) noexcept nogil:
    """Elements below a byte that lie side by side; item_bytes is 0 then."""
    return managed.item_bytes == 0

cdef int64_t managed_nbytes(const Managed* managed) noexcept nogil
cdef str protocol_name(Protocol protocol)
cdef object managed_owner(Managed* managed)
cdef tuple managed_shape(const Managed* managed)
cdef tuple managed_strides(const Managed* managed)

cdef object take_error()
cdef int raise_pending() except -1
