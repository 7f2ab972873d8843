"""Arrow's C interfaces: the structs and the names of their capsules, as Arrow's format documents define them."""

from libc.stdint cimport int32_t, int64_t


# From CDataInterface. The numbers in brackets are byte offsets on a 64-bit machine.
ctypedef struct ArrowSchema:
    const char* format              # [0]
    const char* name                # [8]
    const char* metadata            # [16]
    int64_t flags                   # [24]
    int64_t n_children              # [32]
    ArrowSchema** children          # [40]
    ArrowSchema* dictionary         # [48] the schema of the values, if the array has indices of them
    void (*release)(ArrowSchema*) noexcept nogil    # [56] NULL once it was called, or the struct was moved
    void* private_data              # [64]

ctypedef struct ArrowArray:
    int64_t length                  # [0] in elements
    int64_t null_count              # [8] -1 if the nulls were not counted
    int64_t offset                  # [16] of the first element, in elements
    int64_t n_buffers               # [24]
    int64_t n_children              # [32]
    const void** buffers            # [40] of a primitive type: the validity bits, which can be NULL; and the values
    ArrowArray** children           # [48]
    ArrowArray* dictionary          # [56]
    void (*release)(ArrowArray*) noexcept nogil     # [64] as in the schema
    void* private_data              # [72]

# From CDeviceDataInterface. Its device types are those of DLPack.
ctypedef struct ArrowDeviceArray:
    ArrowArray array                # [0]
    int64_t device_id               # [80] -1 if there is only one device
    int32_t device_type             # [88]
    void* sync_event                # [96] points to an event of the device; NULL if the memory is ready
    int64_t reserved[3]             # [104]

# From CStreamInterface.
ctypedef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream*, ArrowSchema* out) noexcept nogil       # [0]
    int (*get_next)(ArrowArrayStream*, ArrowArray* out) noexcept nogil          # [8] gives a released array at the end
    const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil             # [16]
    void (*release)(ArrowArrayStream*) noexcept nogil                           # [24]
    void* private_data                                                          # [32]

# From CDataInterface/PyCapsuleInterface.
cdef extern from *:
    """
    #define DLBRIDGE_ARROW_SCHEMA "arrow_schema"
    #define DLBRIDGE_ARROW_ARRAY "arrow_array"
    #define DLBRIDGE_ARROW_DEVICE_ARRAY "arrow_device_array"
    #define DLBRIDGE_ARROW_STREAM "arrow_array_stream"
    """
    const char* SCHEMA_NAME "DLBRIDGE_ARROW_SCHEMA"
    const char* ARRAY_NAME "DLBRIDGE_ARROW_ARRAY"
    const char* DEVICE_ARRAY_NAME "DLBRIDGE_ARROW_DEVICE_ARRAY"
    const char* STREAM_NAME "DLBRIDGE_ARROW_STREAM"
