"""An array of Arrow, which may be lists of one length."""

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.arrow_abi cimport ArrowArray
from dlbridge._core.block cimport Managed
from dlbridge._core.sources.arrow_schema cimport ArrowDescription
from dlbridge._core.sources.offer cimport Offer


# A block for an array, which is moved out of its capsule unless a lender keeps it. If it is refused, an array that was
# moved is released.
cdef Managed* block_of(
    ArrowArray* array, object lender, const ArrowDescription* description, DLDevice device, bint is_ready, Offer offer,
) except NULL
cdef Managed* block_of_nothing(const ArrowDescription* description) except NULL
# The two capsules that a producer returned.
cdef tuple pair_of(object answer, str method, const char* name)
cdef void* take_callback(void** release) noexcept nogil
