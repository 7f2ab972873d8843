"""The device table: a row for each DLPack device type, with its names and the kind of its memory."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed, Wrapped
from dlbridge._core.copying cimport Copy


cdef enum:
    ANY_DEVICE_ID = -1          # "cuda" without an index


cdef bint is_host(int32_t device_type) noexcept nogil
cdef int parse_device(object device, DLDevice* out) except -1
cdef object type_number(object device_type)
cdef bint same_device(const DLDevice* wanted, const DLDevice* actual) noexcept nogil
cdef str device_name(DLDevice device)


# Tells the allocator of an array's memory that the producer's stream uses the memory.
ctypedef int (*Tell)(object array, int64_t stream) except -1

# Puts a Handover around a block's owner before the block is lent. Other threads may use the block after that.
ctypedef void* (*MakeHandover)(Managed* managed) except NULL

# The operations on memory of CUDA and ROCm. devices/streams and devices/transfers fill them in. Those are imported with
# the first such memory (operations.pxd), so that a program without any does not pay for it.
ctypedef struct Operations:
    bint ready
    int (*locate)(Managed* managed) except -1
    int (*set_producer)(Managed* managed, int64_t stream, object keeper, bint lasts) except -1
    int (*set_named)(Managed* managed, int64_t stream, object keeper) except -1
    int (*set_own)(Managed* managed, int64_t stream, object keeper) except -1
    int (*set_allocator)(Managed* managed, Tell tell, object array, int64_t stream) except -1
    int (*set_producer_event)(Managed* managed, void* event) except -1
    MakeHandover make_handover
    int (*settle)(Managed* managed) except -1
    int (*inherit)(Managed* managed, const Managed* base) except -1
    int (*label_device)(Managed* managed) except -1
    int64_t (*stream_of)(const Managed* managed) noexcept
    int (*order_consumer)(Managed* managed, int64_t stream, object keeper, bint lasts) except -1
    int (*order_streams)(const DLDevice* device, int64_t first, int64_t then) except -1
    int (*stream_device)(Managed* managed, DLDevice* out) except -1
    void* (*current_context)(int32_t device_type) except? NULL
    int (*restore_context)(int32_t device_type, void* context) except -1
    int (*await_producer)(Managed* managed) except -1
    int (*fetch)(Managed* source, void* into, const void* begin, size_t nbytes) except -1
    int32_t (*current_device)(int32_t device_type) except -1
    bint (*is_large)(int64_t nbytes) noexcept
    bint (*stages)(const DLDevice* device, const void* host, int64_t nbytes) except -1
    bint (*copy_staged)(Managed* into, const Copy* copy) except -1
    int (*send)(Managed* into, const void* source, bint waits) except -1
    int (*copy_there)(Managed* into, Managed* source) except -1
    Managed* (*allocate)(Managed* block, const DLDevice* device) except NULL     # steals block
    Managed* (*duplicate)(Managed* source) except NULL
    Managed* (*pin)(Managed* block, Managed* like, int64_t nbytes) except? NULL
    bint (*is_readable)(Managed* managed) except -1
    bint (*is_pooled)(const Wrapped* owner) noexcept nogil
    int (*check_device)(const DLDevice* device) except -1

cdef Operations operations

cdef bint has_streams(int32_t device_type) noexcept nogil

cdef inline bint is_gpu(int32_t device_type) noexcept nogil:
    """Whether memory is a GPU's of CUDA or ROCm. Managed memory counts as such, since only its driver knows better."""
    return has_streams(device_type) and not is_host(device_type)

cdef inline bint is_pinned(int32_t device_type) noexcept nogil:
    """Whether memory is the host's, but a device may write to it on its streams."""
    return has_streams(device_type) and is_host(device_type)
