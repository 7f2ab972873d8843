"""place: takes a block, and gives the same or another block that was copied, swapped or relabelled."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLPackExchangeAPI
from dlbridge._core.block cimport Managed
from dlbridge._core.copying cimport Copy


# The steps that place takes for a block. Without any step the block is shared as it is.
cdef enum Step:
    TO_HOST_LABEL = 1           # pinned or managed memory is labelled as the CPU's
    COPY = 2                    # every element is copied; dense memory keeps its order of axes, other turns compact
    COPY_SPAN = 4               # the touched bytes are copied, with their strides
    PAIRS_TO_PACKED = 8         # two-lane sub-byte elements are seen as twice as many packed ones
    UNPACK = 16                 # packed sub-byte elements are put one into each byte
    PACK = 32                   # sub-byte elements of a byte each are packed
    PACKED_TO_PAIRS = 64        # packed sub-byte elements are seen as half as many two-lane ones
    COPY_BY_TARGET = 128        # place does nothing: the library takes this memory only by a copy of its own
    TO_DEVICE_LABEL = 256       # pinned or managed memory is labelled as its device's; hand_over() does it
    FETCH = 512                 # the touched bytes of a device's memory are copied to the host, before all other copies
    UPLOAD = 1024               # place does nothing: the target's library copies host memory to a device
    IN_C_ORDER = 2048           # with COPY: the copy is in C order, even if the memory is dense in another order
    RESET_LENGTH_1 = 4096       # axes of one element get the strides of a compact array
    COPY_IN_TARGET = 16384      # place does nothing: the library shares the memory, and copies it on its own stream
    REARRANGE = 32768           # place does nothing: a library makes a compact copy on the device, by its kernels
    SEAL = 8192                 # memory of dlbridge's own becomes read-only, so that later consumers cannot write to it
    NARROW = 65536              # with COPY: elements become of the nearest type
    BY_PRODUCER = 131072        # place does nothing: the producer gave a copy
    COPIES = COPY | COPY_SPAN | PACK | UNPACK | COPY_BY_TARGET | COPY_IN_TARGET | FETCH | UPLOAD | REARRANGE


# How many copies all threads made; it may go round.
cdef int32_t copies_made

# Steals managed, also when it fails. api has the allocator of the library that the copy is for, or is NULL.
cdef Managed* place(Managed* managed, int32_t steps, const DLPackExchangeAPI* api) except NULL
# A copy of compact memory of one type that lies in several parts, side by side along the first axis. With ``peek`` it
# is to be looked at alone, and stays empty.
cdef Managed* gathered(Managed** parts, size_t count, bint peek) except NULL
# Copies elements of the host from one block to another of the same dtype and shape, in any layout; they may overlap.
cdef int copy_into(Managed* into, Managed* source) except -1
# Describes a copy of elements as one of words. The two differ in layout, byte order and signs alone.
cdef void describe_copy(Copy* copy, Managed* into, Managed* source) noexcept nogil
cdef bint is_bool(const Managed* managed) noexcept nogil
cdef int32_t separate_steps(const Managed* managed) noexcept nogil
cdef int32_t pack_steps(const Managed* managed) noexcept nogil

# A compact block with host memory of its own, for the shape, dtype and padding of ``like``. It is not yet validated.
cdef Managed* allocated(Managed* like, int64_t nbytes) except NULL

# The hint of the MemoryError where a copy has no room.
cdef str PASS_A_PART
