"""The drivers of CUDA and ROCm: the calls that dlbridge makes."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from dlbridge._core.abi cimport DLDevice


cdef enum:
    MAX_DEVICES = 64
    OUT_OF_MEMORY = 2           # …_OUT_OF_MEMORY
    PORTABLE = 1                # …_PORTABLE: memory that is pinned for all devices

cdef enum Family:
    CUDA
    ROCM
    FAMILIES

# Where a driver has memory, of which kind, and who may use it.
ctypedef struct MemoryPlace:
    int kind
    int device_id

ctypedef struct MemoryKind:
    int allocation
    int handles
    MemoryPlace place
    void* unused
    unsigned char[8] flags

ctypedef struct MemoryAccess:
    MemoryPlace place
    int flags

ctypedef int (*CopyBytes)(void* into, void* source, size_t nbytes, void* stream) noexcept nogil

# Every call gives an error number, 0 for success.
ctypedef struct Calls:
    int (*init)(unsigned int flags) noexcept nogil
    int (*device_get)(int* device, int ordinal) noexcept nogil
    int (*device_get_count)(int* count) noexcept nogil
    int (*device_get_attribute)(int* value, int attribute, int device) noexcept nogil
    int (*primary_context_retain)(void** context, int device) noexcept nogil
    int (*context_get_current)(void** context) noexcept nogil
    int (*context_get_device)(int* device) noexcept nogil
    int (*context_push)(void* context) noexcept nogil
    int (*context_pop)(void** context) noexcept nogil
    int (*pointer_get_attributes)(unsigned int count, int* attributes, void** values, void* pointer) noexcept nogil
    int (*event_create)(void** event, unsigned int flags) noexcept nogil
    int (*event_destroy)(void* event) noexcept nogil
    int (*event_record)(void* event, void* stream) noexcept nogil
    int (*event_query)(void* event) noexcept nogil
    int (*event_synchronize)(void* event) noexcept nogil
    int (*stream_wait_event)(void* stream, void* event, unsigned int flags) noexcept nogil
    int (*stream_is_capturing)(void* stream, int* status) noexcept nogil
    int (*stream_get_context)(void* stream, void** context) noexcept nogil      # of ROCm: its device, an int
    int (*stream_create)(void** stream, unsigned int flags) noexcept nogil
    int (*stream_synchronize)(void* stream) noexcept nogil
    int (*exchange_capture_mode)(int* mode) noexcept nogil
    CopyBytes copy_to_host
    CopyBytes copy_to_device
    CopyBytes copy_on_device
    int (*device_get_pool)(void** pool, int device) noexcept nogil
    int (*pool_get_attribute)(void* pool, int attribute, void* value) noexcept nogil
    int (*pool_set_attribute)(void* pool, int attribute, void* value) noexcept nogil
    int (*memory_get_info)(size_t* free_bytes, size_t* total_bytes) noexcept nogil
    int (*allocate)(void** memory, size_t nbytes, void* stream) noexcept nogil
    int (*deallocate)(void* memory, void* stream) noexcept nogil
    int (*allocate_pinned)(void** memory, size_t nbytes, unsigned int flags) noexcept nogil
    int (*free_pinned)(void* memory) noexcept nogil
    int (*error_get_name)(int error, const char** text) noexcept nogil
    int (*error_get_string)(int error, const char** text) noexcept nogil
    # Memory with a descriptor: its pages, and the addresses that they are mapped at. NULL in a driver that lacks it.
    int (*device_get_uuid)(char* uuid, int device) noexcept nogil
    int (*pages_granularity)(size_t* nbytes, const MemoryKind* kind, int option) noexcept nogil
    int (*pages_create)(uint64_t* pages, size_t nbytes, const MemoryKind* kind, uint64_t flags) noexcept nogil
    int (*pages_export)(int* descriptor, uint64_t pages, int handles, uint64_t flags) noexcept nogil
    int (*pages_import)(uint64_t* pages, void* descriptor, int handles) noexcept nogil
    int (*pages_release)(uint64_t pages) noexcept nogil
    int (*addresses_reserve)(
        void** start, size_t nbytes, size_t alignment, void* wanted, uint64_t flags) noexcept nogil
    int (*addresses_free)(void* start, size_t nbytes) noexcept nogil
    int (*map)(void* start, size_t nbytes, size_t offset, uint64_t pages, uint64_t flags) noexcept nogil
    int (*unmap)(void* start, size_t nbytes) noexcept nogil
    int (*set_access)(void* start, size_t nbytes, const MemoryAccess* access, size_t count) noexcept nogil
    int (*fill)(void* start, unsigned char value, size_t nbytes, void* stream) noexcept nogil
    int (*context_synchronize)() noexcept nogil


ctypedef struct Driver:
    Calls calls
    bint found                          # whether the driver is on this machine
    bint loaded                         # whether its calls were looked up and it was initialised
    bint has_pages                      # whether it has memory with a descriptor
    int32_t family                      # CUDA or ROCM
    int32_t device_type                 # DLPack's type of device memory
    int32_t host_type                   # DLPack's type of pinned memory
    int32_t managed_type                # DLPack's type of managed memory; device_type if DLPack has no such type
    void* contexts[MAX_DEVICES]         # the primary contexts, retained once
    bint keeps_freed[MAX_DEVICES]       # whether the device's pool was told to keep what is freed
    void* streams[MAX_DEVICES]          # by device: dlbridge's own, for uploads
    void* events[MAX_DEVICES]           # by device: one to use again, or NULL while it is in use; swapped atomically

# What went wrong, by the first call that failed. check() raises it once the thread holds the GIL again.
ctypedef struct DriverFailure:
    int error
    size_t call                         # the offset in Calls of the call that failed, in bytes
    size_t wanted                       # bytes that could not be allocated
    size_t available                    # … and those that the device had; both 0 where nothing was to be allocated
    bint capturing                      # no call failed, but a stream is being captured into a graph

cdef object driver_error(Driver* driver, const DriverFailure* failure)

cdef inline bint is_well(const DriverFailure* failure) noexcept nogil:
    return not failure.error and not failure.capturing

cdef inline int check(Driver* driver, const DriverFailure* failure) except -1:
    """Raise what went wrong, if anything did."""
    if not is_well(failure):
        raise driver_error(driver, failure)


ctypedef struct Location:
    int32_t device_type
    int32_t device_id                   # the driver's ordinal, also of the device that pinned memory belongs to
    size_t start, nbytes                # the allocation around the address; 0 bytes where the driver does not say
    bint concurrent                     # whether the CPU may read the managed memory while the device works


cdef Driver* find_driver(int32_t device_type) except NULL
cdef Driver* any_driver() except NULL
# Raises DeviceError for a device that the driver does not have. Nothing is checked where there is no driver.
cdef int check_device(const DLDevice* device) except -1
cdef size_t free_bytes(Driver* driver) noexcept nogil
cdef int32_t checked_ordinal(Driver* driver, int32_t device_id) except -1
cdef int locate(Driver* driver, void* pointer, Location* out) except -1
cdef bint is_pageable(Driver* driver, const void* pointer) noexcept nogil


# What enter() has changed, for leave().
ctypedef struct Entered:
    bint pushed
    void* before                # the context that was current before, or NULL
    int capture_mode            # the thread's mode, for leave(); before relax(), the mode that it sets

cdef bint enter(Driver* driver, int32_t device_id, Entered* entered, DriverFailure* failure) noexcept nogil
cdef bint relax(Driver* driver, Entered* entered, DriverFailure* failure) noexcept nogil
cdef void leave(Driver* driver, Entered* entered, DriverFailure* failure) noexcept nogil
cdef bint failed(const Driver* driver, const void* call, int error, DriverFailure* failure) noexcept nogil
cdef void* current_context(int32_t device_type) except? NULL
cdef int restore_context(int32_t device_type, void* context) except -1
cdef void order_streams(
    Driver* driver, int32_t device_id, int64_t first, int64_t then, DriverFailure* failure,
) noexcept nogil
cdef void order_after_event(
    Driver* driver, int32_t device_id, void* event, int64_t then, DriverFailure* failure) noexcept nogil
# An event that happens when a stream has done the work that it was given so far; NULL on failure.
cdef void* mark_stream(Driver* driver, int32_t device_id, int64_t stream, DriverFailure* failure) noexcept nogil
cdef bint has_happened(Driver* driver, int32_t device_id, void* event, bint wait) noexcept nogil
cdef bint has_finished(Driver* driver, void* stream, DriverFailure* failure) noexcept nogil
cdef void wait_for_stream(Driver* driver, int32_t device_id, int64_t stream, DriverFailure* failure) noexcept nogil
# By one of the calls that copy.
cdef void move(
    Driver* driver, int32_t device_id, const CopyBytes* call, void* into, void* source, size_t nbytes, int64_t stream,
    bint waits, DriverFailure* failure,
) noexcept nogil
cdef int32_t current_device(Driver* driver) noexcept nogil
cdef void allocate(
    Driver* driver, int32_t device_id, void** memory, size_t nbytes, void* source, int64_t stream,
    DriverFailure* failure,
) noexcept nogil
# Pinned memory for all devices; NULL where there is none left.
cdef void* allocate_pinned(Driver* driver, int32_t device_id, size_t nbytes) noexcept nogil
cdef void free_pinned(Driver* driver, int32_t device_id, void* memory) noexcept nogil
# A stream of dlbridge's own, which has no order with others; NULL on failure.
cdef void* own_stream(Driver* driver, int32_t device_id, DriverFailure* failure) noexcept nogil
cdef void deallocate(
    Driver* driver, int32_t device_id, void* memory, int64_t stream, DriverFailure* failure) noexcept nogil
