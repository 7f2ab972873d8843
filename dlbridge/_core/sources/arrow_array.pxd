"""An array of Arrow, which may be lists of one length, and what its schema says of its elements."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.arrow_abi cimport ArrowArray, ArrowSchema
from dlbridge._core.block cimport Managed
from dlbridge._core.layout cimport MAX_NDIM
from dlbridge._core.sources.offer cimport Offer


# What a schema says of each element of its array.
ctypedef struct ArrowDescription:
    int32_t row                     # of the values
    int32_t levels                  # how many lists of one length lie around the values
    int64_t lengths[MAX_NDIM]       # of these lists, from the outermost on
    int32_t offset_bytes[MAX_NDIM]  # of each offset of lists that have offsets: 4 or 8; 0 for those of a fixed length
    int32_t ndim                    # the axes of an element: those lists, or what a tensor type makes of one
    int64_t shape[MAX_NDIM]
    int64_t strides[MAX_NDIM]       # in values


# Reads a schema, and raises if DLPack does not have its type.
cdef int read_schema(const ArrowSchema* schema, Offer offer, ArrowDescription* out) except -1
# The hint that the library's facts have for a field, or the usual one.
cdef str hint_of(Offer offer, str field, int32_t levels)
cdef object refused(str field, object value, str wrong)

# A block for an array, which is moved out of its capsule unless a lender keeps it. If it is refused, an array that was
# moved is released.
cdef Managed* block_of(
    ArrowArray* array, object lender, const ArrowDescription* description, DLDevice device, bint is_ready, Offer offer,
) except NULL
cdef Managed* block_of_nothing(const ArrowDescription* description) except NULL
# The two capsules that a producer returned.
cdef tuple pair_of(object answer, str method, const char* name)
cdef void* take_callback(void** release) noexcept nogil
