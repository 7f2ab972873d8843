"""The block: every source makes one, place takes one and gives one, and every target consumes one.

A Managed describes memory and refers to what owns it. These verbs say what is done with its references and its owner:

=============  =======================================================================================================
own            The block takes over an owner. From then on no other code releases that owner.
own_storage    The owner can release the memory while it lives, as a torch tensor can that is resized. Its storage is
               owned in its place, so that the memory stays as long as the block. This changes the tensor, so it waits
               until the memory is to be shared.
keep           The block holds a reference to one more object, beside its owner.
retain         One more reference to the block.
drop           One reference less. The last one releases the owner, if it is still there, and frees the block.
drop_second    Drop one of two references. The other one stays, so no atomic step is needed with the GIL.
release        Release the owner now, whatever references are left, and drop one reference. The deleter of a block does
               this, unless the block is lent: the deleter of a lent block drops.
new_view       A new block over the same memory, which owns a reference to the first one.
seal           Make memory of dlbridge's own read-only, because no code writes to it any more.
take           Make a block that owns what is given. What is given is released if that fails.
=============  =======================================================================================================
"""


from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport malloc

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLManagedTensor, DLManagedTensorVersioned, DLTensor, kDLCPU, kDLOpenCL,
)
from dlbridge._core.atomic cimport ONE_AT_A_TIME, add, load
from dlbridge._core.dtypes cimport NO_ROW, find_dlpack, get_row
from dlbridge._core.layout cimport MAX_NDIM, Span, take_compact, take_plain, take_plain_bytes


cdef extern from "dlbridge/_core/interpreter.h":
    # Whether Python is neither shut down nor shutting down.
    bint python_runs "DLBRIDGE_PYTHON_RUNS"() noexcept nogil
    bint holds_gil "dlbridge_holds_gil"() noexcept nogil
    ctypedef int Attachment "dlbridge_Attachment"       # of this thread to Python, until it is detached
    # Whether Python runs; this thread then has the GIL, or is attached where there is none.
    bint attach "dlbridge_attach"(void* interpreter, Attachment* attachment) noexcept nogil
    void detach "dlbridge_detach"(Attachment attachment) noexcept nogil
    void* view_of_main "DLBRIDGE_MAIN_INTERPRETER"() noexcept nogil
    bint others_hold "DLBRIDGE_OTHERS_HOLD"(PyObject* obj) noexcept nogil

cdef extern from *:
    """
    #define dlbridge_exporter(view) (((Py_buffer *) (view))->obj)
    #define DLBRIDGE_IS_BYTES(obj) (PyBytes_CheckExact(obj) || PyByteArray_CheckExact(obj))
    """
    PyObject* exporter "dlbridge_exporter"(void* view) noexcept nogil
    # Whether an object is bytes or a bytearray, whose memory is reached by references to it alone.
    bint is_bytes "DLBRIDGE_IS_BYTES"(PyObject* obj) noexcept nogil


cdef void* main_interpreter     # for attach(): the interpreter that loaded this module, which is the main one

# The kinds of owner. The kind says how the owner is released.
cdef enum Owns:
    OWNS_NOTHING                # no owner, or none any more
    OWNS_OBJECT                 # a PyObject
    NOT_YET_OWNED               # a PyObject that can release its memory while it lives, until its storage is owned
    OWNS_BUFFER                 # a Py_buffer at the end of the block
    OWNS_MEMORY                 # memory of malloc()
    OWNS_BASE                   # a reference to another block
    OWNS_VERSIONED              # a foreign DLManagedTensorVersioned
    OWNS_LEGACY                 # a foreign DLManagedTensor
    OWNS_WRAPPED                # a Wrapped around one of the others
    OWNER_KINDS                 # how many there are


# Releases an owner. It runs exactly once, in any thread, with or without the GIL, possibly with an exception pending.
ctypedef void (*Release)(void* owner) noexcept nogil

# The beginning of a struct that does more when its owner is released. Its release frees the struct too.
ctypedef struct Wrapped:
    Release release
    void* owner
    uint8_t owns                # the kind of that owner, an Owns


# Finds the storage of an object that is NOT_YET_OWNED, and makes it keep the memory from now on. The module that makes
# such blocks sets this function.
ctypedef object (*FindStorage)(object owner)

cdef FindStorage find_storage
cdef void set_find_storage(FindStorage found) noexcept

# The release of each kind of owner, by Owns. block.pyx fills them in.
cdef Release[OWNER_KINDS] releases

cdef void release_owner(uint8_t owns, void* owner) noexcept nogil
# Runs a function that releases foreign memory. That function takes the GIL itself if it needs it.
cdef void release_foreign(void* owner, Release drop) noexcept nogil

# A Wrapped that calls a function of other code with the owner; NULL if there is no memory for it.
cdef Wrapped* new_called(void* owner, Release drop) noexcept nogil


# ---- the block -------------------------------------------------------------------------------------------------------

cdef enum Protocol:
    PROTOCOL_NUMPY
    PROTOCOL_EXCHANGE_API
    PROTOCOL_DLPACK
    PROTOCOL_DLPACK_LEGACY
    PROTOCOL_CUDA_ARRAY_INTERFACE
    PROTOCOL_ARRAY_STRUCT
    PROTOCOL_ARRAY_INTERFACE
    PROTOCOL_ARROW
    PROTOCOL_BUFFER
    PROTOCOL_DLBRIDGE


# How the memory differs from a compact block of native words. DLPack cannot express these four marks, so place resolves
# those that the target does not support. The other marks say what the strides do (layout.Form).
cdef enum Mark:
    SWAPPED = 1             # the bytes of an element are in the other order
    BYTE_STRIDES = 2        # strides are in bytes, since one of them is not a multiple of the item size
    NEGATED = 4             # every value stands for its negative (torch's negative bit)
    CONJUGATED = 8          # every value stands for its conjugate (torch's conjugate bit)


# The description of memory, and its owner. It is the head of a block, and every live result holds a block. It is on the
# caller's stack if an object is only looked at: that object keeps the memory, so the owner and the references are
# neither set nor read.
# A value that can be derived from other fields has no field of its own: with two axes a block has 120 bytes, which is
# all that malloc() puts into a chunk of 128.
ctypedef struct Managed:
    DLManagedTensorVersioned abi    # first: &managed.abi travels, and the deleter finds the block by that address
    int32_t references              # atomic; the block is freed with the last one
    uint8_t owns                    # Owns; the thread that releases the owner swaps it atomically for OWNS_NOTHING
    uint8_t protocol                # Protocol
    int8_t row                      # of the dtype table
    uint8_t marks                   # Mark and layout.Form, or'ed
    # int64 shape[ndim], strides[ndim] follow in the same block.


cdef enum:
    KNOWN_FLAGS = (
        DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)

# The functions that every conversion calls are inline, because a call into another extension module takes the time of
# fifty instructions.
cdef void sole_deleter(DLManagedTensorVersioned* tensor) noexcept nogil
cdef void lent_deleter(DLManagedTensorVersioned* tensor) noexcept nogil
cdef Managed* refuse_block(Protocol protocol, int64_t ndim) except NULL

cdef inline void managed_begin(Managed* managed, Protocol protocol, int32_t ndim, int64_t* room) noexcept nogil:
    """Describe memory of the CPU of which nothing is known yet, with room for ndim extents and as many strides."""
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    managed.abi.flags = 0
    tensor.data = NULL
    tensor.byte_offset = 0
    tensor.ndim = ndim
    tensor.device.device_type = kDLCPU
    tensor.device.device_id = 0
    tensor.shape = room
    tensor.strides = room + ndim
    managed.protocol = protocol
    managed.row = NO_ROW
    managed.marks = 0


cdef inline Managed* new_block(int64_t ndim, size_t extra_bytes) noexcept nogil:
    """A block without a description, with room for shape and strides, and behind them for extra_bytes; NULL on failure.
    """
    cdef Managed* managed
    if not 0 <= ndim <= MAX_NDIM:
        return NULL
    managed = <Managed*> malloc(sizeof(Managed) + 2 * ndim * sizeof(int64_t) + extra_bytes)
    if managed == NULL:
        return NULL
    managed.abi.version.major = DLPACK_MAJOR_VERSION
    managed.abi.version.minor = DLPACK_MINOR_VERSION
    managed.abi.manager_ctx = NULL
    managed.abi.deleter = sole_deleter
    managed.references = 1
    managed.owns = OWNS_NOTHING
    return managed


cdef inline Managed* managed_new(Protocol protocol, int64_t ndim) except NULL:
    """An unowned block on the CPU with room for ndim extents and strides."""
    cdef Managed* managed = new_block(ndim, 0)
    if managed == NULL:
        return refuse_block(protocol, ndim)
    managed_begin(managed, protocol, <int32_t> ndim, room_of(managed))
    return managed


cdef inline int64_t* room_of(Managed* managed) noexcept nogil:
    return <int64_t*> (managed + 1)


cdef inline int managed_take_layout(Managed* managed, const int64_t* shape, const int64_t* strides) noexcept nogil:
    """The one check: take a layout, find the row and what the strides do, and give the fault, or 0.

    Strides are in elements, or in bytes if the memory is marked so; NULL is compact.
    """
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    if managed.row == NO_ROW:
        managed.row = find_dlpack(tensor.dtype)
    if strides == NULL and shape != NULL:       # DLPack before 1.2
        take_compact(tensor.ndim, shape, tensor.shape, tensor.strides)
        shape, strides = tensor.shape, tensor.strides
    # Most memory is as plain as this, and nothing can be wrong with it.
    if managed.row != NO_ROW and not managed.marks and shape != NULL and tensor.dtype.bits >= 8 and (
            take_plain(tensor.ndim, shape, strides, tensor.shape, tensor.strides) and <int64_t> tensor.data > 0
            and not tensor.byte_offset and <int> kDLCPU <= tensor.device.device_type <= <int> kDLOpenCL):
        managed.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
        return 0
    return find_fault(managed, shape, strides)

cdef int find_fault(Managed* managed, const int64_t* shape, const int64_t* strides) noexcept nogil
cdef Managed* managed_checked(Managed* managed) except NULL

cdef inline int managed_describe(
    Managed* managed, Protocol protocol, const DLTensor* tensor, uint64_t flags, int64_t* room,
) noexcept nogil:
    """Describe a foreign DLTensor, whose ndim is in bounds; give the fault, or 0. Of its pointers only data is kept.

    Shape and strides are copied, so that a producer that changes them later changes nothing that was checked.
    """
    managed.abi.flags = flags & KNOWN_FLAGS
    managed.abi.dl_tensor = tensor[0]
    managed.abi.dl_tensor.shape, managed.abi.dl_tensor.strides = room, room + tensor.ndim
    managed.protocol = protocol
    managed.row = NO_ROW
    managed.marks = 0
    return managed_take_layout(managed, tensor.shape, tensor.strides)

cdef Managed* managed_from_tensor(Protocol protocol, const DLTensor* tensor, uint64_t flags) except NULL
cdef Managed* managed_take_versioned(Protocol protocol, DLManagedTensorVersioned* foreign) except NULL
cdef Managed* managed_take_buffer(Protocol protocol, Py_buffer* view, int64_t ndim) except NULL
cdef Managed* managed_like(const Managed* base) except NULL
cdef Managed* managed_new_view(Managed* base) except NULL
cdef Managed* managed_new_over(Managed* base, Protocol protocol, int32_t ndim) except NULL

cdef inline bint managed_take_bytes(
    Managed* managed, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes,
) noexcept nogil:
    """Take a layout with strides in bytes; NULL strides are compact. The row is set before.

    True if the layout is compact in C order, has elements, and is far from any limit, so that it needs no check.
    """
    if strides_bytes != NULL and take_plain_bytes(
            managed.abi.dl_tensor.ndim, shape, strides_bytes, get_row(managed.row).item_shift,
            managed.abi.dl_tensor.shape, managed.abi.dl_tensor.strides):
        return True
    take_other_bytes(managed, shape, strides_bytes)
    return False

cdef void take_other_bytes(Managed* managed, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes) noexcept nogil
cdef int managed_take_tuples(Managed* managed, tuple shape, tuple strides) except -1

cdef inline void managed_set_row(Managed* managed, int32_t row) noexcept nogil:
    managed.row = row
    managed.abi.dl_tensor.dtype = get_row(row).dlpack

cdef inline void managed_own(Managed* managed, Owns owns, void* owner) noexcept nogil:
    managed.abi.manager_ctx = owner
    managed.owns = owns

cdef inline void managed_own_object(Managed* managed, object owner) noexcept:
    Py_INCREF(owner)
    managed_own(managed, OWNS_OBJECT, <void*> owner)

# Owns the storage in place of an object that is not yet owned. On failure the block is released.
cdef int own_storage(Managed* managed) except -1

cdef inline int managed_own_storage(Managed* managed) except -1:
    """Make the memory stay as long as the block, before it is shared. On failure the block is released."""
    return own_storage(managed) if managed.owns == NOT_YET_OWNED else 0

# Keeps a reference to obj beside the owner, and releases it after the owner. On failure the block is released.
cdef int managed_keep(Managed* managed, object obj) except -1

# What is kept beside an owner of OWNS_WRAPPED, borrowed; NULL if nothing is.
cdef PyObject* kept_object(void* owner) noexcept nogil

# Keeps an export beside the owner. It is released before the owner, because the owner may close the memory under it.
cdef int managed_keep_export(Managed* managed, object export) except -1

cdef DLManagedTensor* managed_as_legacy(Managed* managed) noexcept nogil

cdef inline Managed* managed_retain(Managed* managed) noexcept nogil:
    """Add one reference. The caller holds the GIL and a reference.

    If that reference is the only one, no other thread can change the number, and no atomic step is needed.
    """
    if ONE_AT_A_TIME and load(&managed.references) == 1:
        managed.references = 2
    else:
        add(&managed.references, 1)
    return managed

cdef inline Managed* managed_made_lendable(Managed* managed) noexcept nogil:
    """Make it a block that several consumers can have at a time: its deleter drops one reference instead of releasing.

    Consumers read the block, and never write to it. It no longer counts as a copy made for one consumer, since
    the lender uses the memory too.
    """
    managed.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_IS_COPIED
    managed.abi.deleter = lent_deleter
    return managed

cdef void managed_drop(Managed* managed) noexcept nogil
cdef void managed_release(Managed* managed) noexcept nogil

cdef inline void managed_drop_second(Managed* managed) noexcept nogil:
    """Drop one of two references. The caller holds the GIL, and the other reference stays meanwhile.

    With the GIL no other thread can retain the block meanwhile. Without the GIL two threads may have views of one
    Tensor, so the step is atomic.
    """
    if ONE_AT_A_TIME and load(&managed.references) == 2:
        managed.references = 1
    else:
        managed_drop(managed)

cdef bint managed_alone(const Managed* managed) noexcept nogil
cdef void managed_seal(Managed* managed) noexcept nogil
cdef object managed_unwrapped(Managed* managed)
cdef bint managed_move_buffer(Managed* managed, Py_buffer* into) noexcept nogil

cdef inline char* managed_data(const Managed* managed) noexcept nogil:
    return <char*> managed.abi.dl_tensor.data + managed.abi.dl_tensor.byte_offset

cdef inline bint managed_packed(const Managed* managed) noexcept nogil:
    """Whether the elements are below a byte and lie side by side."""
    return get_row(managed.row).subbyte and not managed.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED

cdef inline int64_t managed_item_bytes(const Managed* managed) noexcept nogil:
    """The bytes of one element; 0 where elements are packed."""
    return 0 if managed_packed(managed) else get_row(managed.row).item_bytes

cdef inline int64_t managed_count(const Managed* managed) noexcept nogil:
    cdef int64_t count = 1
    cdef int32_t axis
    for axis in range(managed.abi.dl_tensor.ndim):
        count *= managed.abi.dl_tensor.shape[axis]
    return count

cdef Span managed_span(const Managed* managed) noexcept nogil
cdef int64_t managed_nbytes(const Managed* managed) noexcept nogil
cdef str protocol_name(Protocol protocol)
cdef object managed_owner(Managed* managed)

# Gives the block of a Tensor, and NULL for any other object. tensor.pyx sets this function.
ctypedef const Managed* (*FindBlock)(object owner) noexcept

cdef const Managed* block_of(object owner) noexcept
cdef void set_find_block(FindBlock found) noexcept
cdef tuple managed_shape(const Managed* managed)
cdef tuple managed_strides(const Managed* managed)
cdef tuple integers(const int64_t* values, int32_t count, int64_t factor)
