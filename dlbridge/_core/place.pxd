"""place: takes a block, and gives the same or another block that was copied, swapped or relabelled."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLDevice, DLPackExchangeAPI
from dlbridge._core.block cimport Managed


# What is done with memory, in the order in which it is done. Without any step the memory is shared as it is.
cdef enum Step:
    # a library does these, before
    BY_PRODUCER = 1 << 0        # the producer gave a copy
    REARRANGE = 1 << 1          # a library makes a compact copy on the device, by its kernels, in the memory's place
    # hand_over()
    TO_DEVICE_LABEL = 1 << 2    # pinned or managed memory is labelled as its device's
    # place
    TO_HOST_LABEL = 1 << 3      # pinned or managed memory is labelled as the CPU's
    FETCH = 1 << 4              # the touched bytes of a device's memory are copied to the host
    COPY = 1 << 5               # every element is copied; dense memory keeps its order of axes, other turns compact
    COPY_SPAN = 1 << 6          # the touched bytes are copied, with their strides
    IN_C_ORDER = 1 << 7         # with COPY: the copy is in C order, even if the memory is dense in another order
    NARROW = 1 << 8             # with COPY: elements become of the nearest type
    PAIRS_TO_PACKED = 1 << 9    # two-lane sub-byte elements are seen as twice as many packed ones
    UNPACK = 1 << 10            # packed sub-byte elements are put one into each byte
    PACK = 1 << 11              # sub-byte elements of a byte each are packed
    PACKED_TO_PAIRS = 1 << 12   # packed sub-byte elements are seen as half as many two-lane ones
    RESET_LENGTH_1 = 1 << 13    # axes of one element get the strides of a compact array
    SEAL = 1 << 14              # memory of dlbridge's own becomes read-only, so that later consumers cannot write to it
    # the target's library
    UPLOAD = 1 << 15            # it copies host memory to a device
    COPY_BY_TARGET = 1 << 16    # it takes this memory only by a copy of its own
    COPY_IN_TARGET = 1 << 17    # it shares the memory, and copies it on its own stream
    # place
    IN_PINNED_MEMORY = 1 << 18  # with COPY: the copy is in pinned memory, as the source is
    COPIES = COPY | COPY_SPAN | PACK | UNPACK | COPY_BY_TARGET | COPY_IN_TARGET | FETCH | UPLOAD | REARRANGE


# How many copies all threads made; it may go round.
cdef int32_t copies_made

# Steals managed, also when it fails. api has the allocator of the library that the copy is for, or is NULL.
cdef Managed* place(Managed* managed, int32_t steps, const DLPackExchangeAPI* api) except NULL
# A copy of compact memory of one type that lies in several parts, side by side along the first axis. With ``peek`` it
# is to be looked at alone, and stays empty.
cdef Managed* gathered(Managed** parts, size_t count, bint peek) except NULL
# A copy of host memory in memory of a device's pool, dense and of nobody else, for results whose memory no library
# gives; ``device`` may have no number. Without ``waits`` the copy may only be queued: the source has to stay until
# that is done.
cdef Managed* sent_to_pool(Managed* source, const DLDevice* device, bint waits) except NULL
# Whether host memory is large, and such that it is copied to a device through pinned buffers: in any layout, and in the
# type of a row, which may be the nearest one.
cdef bint is_stageable(Managed* source, int row, const DLDevice* device) except -1
# Fills dense memory of a device in this way. False if it was not done, for want of pinned memory.
cdef bint stage(Managed* into, Managed* source) except -1
# The same into new memory of the pool, in C order if the steps say so. NULL also for want of the device's memory.
cdef Managed* staged_in_pool(Managed* source, int row, int32_t steps, const DLDevice* device) except? NULL
# The strides, in elements, of a dense copy, which keeps the order of the axes of dense memory.
cdef tuple dense_strides(const Managed* source)
# A new block over the same memory, for a use that waits for the work on it.
cdef Managed* shared_in_order(Managed* base) except NULL
# Copies elements of the host from one block to another of the same dtype and shape, in any layout; they may overlap.
cdef int copy_into(Managed* into, Managed* source) except -1
cdef bint is_bool(const Managed* managed) noexcept nogil
# Whether a device's memory has too many holes for all of its span to be fetched.
cdef bint is_spread(const Managed* managed) noexcept nogil
cdef int32_t separate_steps(const Managed* managed) noexcept nogil
cdef int32_t pack_steps(const Managed* managed) noexcept nogil

# A compact block with host memory of its own, for the shape, dtype and padding of ``like``. It is not yet validated.
cdef Managed* allocated(Managed* like, int64_t nbytes) except NULL

# The hint of the MemoryError where a copy has no room, and those where dlbridge cannot make one of a device's memory.
cdef str PASS_A_PART
cdef str COPY_THERE
cdef str FETCH_THERE
