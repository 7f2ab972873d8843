"""place: the copies of a block in host memory, and its bytes seen as other elements."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLDevice, DLPackExchangeAPI
from dlbridge._core.block cimport Managed


# How many copies all threads made; it may go round.
cdef int32_t copies_made

# A copy of the values in memory of its own, writable and in native byte order, by COPY or COPY_SPAN and what the steps
# say of it. api has the allocator of the library that the copy is for, or is NULL.
cdef Managed* copied(Managed* source, int32_t steps, const DLPackExchangeAPI* api) except NULL
# As copied(); managed is stolen, also when this fails.
cdef Managed* replaced(Managed* managed, int32_t steps) except NULL
# A copy on the host of the touched bytes of a device's memory, with their strides. The bytes are there on return.
cdef Managed* fetched(Managed* source) except NULL
# Sees two-lane elements as twice as many packed ones along the last axis, or the other way round.
cdef Managed* with_lanes(Managed* managed, int lanes) except NULL
# A copy of compact sub-byte elements, from packed to one in each byte or the other way round.
cdef Managed* repacked(Managed* source, bint unpacks) except NULL
# A copy of compact memory of one type that lies in several parts, side by side along the first axis. With ``peek`` only
# its description is wanted, and no bytes are copied.
cdef Managed* gathered(Managed** parts, size_t count, bint peek) except NULL
# Whether host memory is large and pageable, so that it is copied to a device through pinned buffers: from any layout,
# and into the type of ``row``, which may be the nearest one.
cdef bint is_stageable(Managed* source, int row, const DLDevice* device) except -1
# Fills dense memory of a device through pinned buffers. False if it was not done, for example for want of such buffers.
cdef bint copy_staged(Managed* into, Managed* source) except -1
# A block without memory, for a dense copy in native byte order and the type of a row; in C order if the steps say so.
cdef Managed* dense_like(const Managed* source, int row, int32_t steps) except NULL
# A new block over the same memory. On a device it is ready on the stream on which ``base`` is.
cdef Managed* shared_in_order(Managed* base) except NULL
# Lets a block over the memory of another one be ready on the same stream; managed is stolen, also on failure.
cdef Managed* in_order_of(const Managed* base, Managed* managed) except NULL
# Copies elements of the host from one block to another of the same dtype and shape, in any layout; they may overlap.
cdef int copy_into(Managed* into, Managed* source) except -1

# Whether the system has so much memory. It can promise more than it has, and end the process when that is used.
cdef bint has_room_for(int64_t nbytes) except -1

# Asks for pages that are quicker to get, where there are many.
cdef void ask_for_huge_pages(void* memory, int64_t nbytes) noexcept nogil

# A compact block with host memory of its own, for the shape, dtype and padding of ``like``. It is not yet validated.
cdef Managed* allocated(Managed* like, int64_t nbytes) except NULL

# The hint of the MemoryError where a copy has no room, and those where dlbridge cannot make one of a device's memory.
cdef str PASS_A_PART
cdef str COPY_THERE
cdef str FETCH_THERE
