"""The decision: whether memory is shared, copied or refused, and the first reason."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, DLTensor, kDLCPU, kDLCUDA, kDLROCM
from dlbridge._core.atomic cimport load_rows
from dlbridge._core.block cimport Managed, managed_data
from dlbridge._core.devices.table cimport same_device
from dlbridge._core.request cimport COPY_ALWAYS, READONLY_SHARE, Request
from dlbridge._core.target cimport READ_ONLY, WRITABLE, Target


# What is done with memory, in the order in which it is done. Without any step, or with ORDER alone, it is shared as it
# is.
cdef enum Step:
    REARRANGE = 1 << 0          # a library makes a compact copy on the device, by its kernels, in the memory's place
    LABEL_AS_DEVICE = 1 << 1    # pinned or managed memory is labelled as its device's
    ORDER = 1 << 2              # the consumer's stream waits for the producer's, or it is noted that nobody waits
    LABEL_AS_HOST = 1 << 3      # pinned or managed memory is labelled as the CPU's
    FETCH = 1 << 4              # the touched bytes of a device's memory are copied to the host
    COPY = 1 << 5               # every element is copied; dense memory keeps its order of axes, other turns compact
    COPY_SPAN = 1 << 6          # the touched bytes are copied, with their strides
    LABEL_COPY_AS_HOST = 1 << 7     # a copy in pinned memory is labelled as the CPU's
    ORDER_COPY = 1 << 8         # the library's current stream waits for a copy on a device
    PAIRS_TO_PACKED = 1 << 9    # two-lane sub-byte elements are seen as twice as many packed ones
    UNPACK = 1 << 10            # packed sub-byte elements are put one into each byte
    PACK = 1 << 11              # sub-byte elements of a byte each are packed
    PACKED_TO_PAIRS = 1 << 12   # packed sub-byte elements are seen as half as many two-lane ones
    RESET_LENGTH_1 = 1 << 13    # axes of one element get the strides of a compact array
    SEAL = 1 << 14              # memory of dlbridge's own becomes read-only, so that later consumers cannot write to it
    # the target's library does these, as it is given the memory
    UPLOAD = 1 << 15            # it copies host memory to a device
    COPY_BY_TARGET = 1 << 16    # it takes this memory only by a copy of its own
    COPY_IN_TARGET = 1 << 17    # it shares the memory, and copies it on its own stream
    # how a copy is made
    IN_C_ORDER = 1 << 18        # COPY: in C order, even if the memory is dense in another order
    NARROW = 1 << 19            # COPY and REARRANGE: elements become of the nearest type
    IN_PINNED_MEMORY = 1 << 20  # COPY: in pinned memory, as the source is
    BY_PRODUCER = 1 << 21       # the producer gave a copy
    COPIES = COPY | COPY_SPAN | PACK | UNPACK | COPY_BY_TARGET | COPY_IN_TARGET | FETCH | UPLOAD | REARRANGE
    HOW = IN_C_ORDER | NARROW | IN_PINNED_MEMORY | BY_PRODUCER
    TAKEN = UPLOAD - 1 & ~REARRANGE     # the steps that dlbridge or the driver does
    # UPLOAD can do these at the same time, in one pass through pinned buffers.
    STAGED = COPY | RESET_LENGTH_1

cdef enum Reason:
    NO_REASON = 0
    COPY_ASKED
    BYTE_ORDER
    LAZY_BITS
    ODD_STRIDE
    NEGATIVE_STRIDE
    ZERO_STRIDE
    HOLES
    AXIS_ORDER
    MISALIGNED
    ELEMENT_FORM
    WIDE_TYPE
    OWN_FORM
    NO_SHARING
    OTHER_DEVICE
    READ_ONLY_MEMORY
    WRITABLE_MEMORY
    READ_ONLY_VIEW
    ANOTHER_HOST
    SPREAD
    UNKEPT_COPY
    GIVEN_COPY
    GATHERED_CHUNKS
    ORDER_ASKED
    # of memory that is shared
    SHARED_READ_ONLY
    SHARED_UNTIL_READ
    # of what is refused
    OTHER_AXES
    LACKED_TYPE
    ODD_EXTENT
    NOT_MOVED
    NO_HOST
    NO_SUCH_HOST
    HOST_MEMORY
    DEVICE_MEMORY
    NO_SUCH_GPU
    NOT_FETCHED

cdef enum Refused:
    NOT_REFUSED = 0
    IN_ANY_FORM                # no copy that the caller allows would help
    NO_COPY                 # a copy is needed, and copy=False forbids it
    NO_KERNEL               # a copy is needed that nobody can make on this device
    BY_POLICY               # readonly="error"


# What the library and the driver have to be asked before a decision. They are asked only if it matters for this memory.
ctypedef struct Findings:
    int row                 # of the elements that the target gets
    bint takes              # whether a library that is particular takes this dtype and shape
    bint readable           # whether the CPU can read this managed memory where it is
    bint kernel             # whether a library can make a compact copy of this device's memory, by its kernels
    bint copied             # whether the producer gave a copy; asked for explain() alone
    bint constant           # whether nobody can write to read-only memory; asked where that may save a copy
    int32_t host            # the target's device of the host, if it numbers them, for memory that is the host's

ctypedef struct Decision:
    int32_t steps           # Step, or'ed
    Reason reason           # the first reason for a copy or a refusal, or what is to be said of memory that is shared
    Refused refused
    DLDevice upload         # where UPLOAD puts the memory
    bint staged             # whether UPLOAD reads the memory as it lies, and itself does the steps of STAGED


cdef inline bint supports_access(const Managed* managed, Target target) noexcept nogil:
    """Whether the target has read-only arrays for read-only memory, or writable ones for writable memory.

    For immutable arrays, which are neither, it depends on who keeps read-only memory: see Findings.constant.
    """
    cdef uint32_t needed = READ_ONLY | WRITABLE if managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY else WRITABLE
    return target.supports & needed == needed

cdef inline bint is_immutable(Target target) noexcept nogil:
    """Whether the target's arrays never change."""
    return not target.supports & <uint32_t> WRITABLE

cdef inline bint fits(const Managed* managed, Target target, const Request* request) noexcept:
    """Whether memory can be shared as it is: the target supports its marks, and the caller asks for nothing else.

    False does not mean that a copy is needed: decide() then finds what is needed.
    """
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    return (
        managed.marks & ~target.supports == 0
        and not (request.c_order and managed.marks)
        and load_rows(&target.plain_rows) >> managed.row & 1
        and tensor.device.device_type == kDLCPU
        and <size_t> managed_data(managed) & target.low_bits[managed.row] == 0
        and request.copy < COPY_ALWAYS
        and (not request.has_device or same_device(&request.device, &tensor.device))
        and (supports_access(managed, target) or request.readonly == READONLY_SHARE)
    )


cdef inline bint fits_there(const Managed* managed, Target target, const Request* request) noexcept:
    """Whether a GPU's own memory, which is neither pinned nor managed, can be shared as it is, as in fits()."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int32_t device_type = tensor.device.device_type
    return (
        device_type in (kDLCUDA, kDLROCM)
        and managed.marks & ~target.supports == 0
        and not (request.c_order and managed.marks)
        and target.device_rows >> managed.row & 1
        and (target.gpus < 0 or tensor.device.device_id < target.gpus)
        and <size_t> managed_data(managed) & target.device_low_bits[managed.row] == 0
        and request.copy < COPY_ALWAYS
        and not request.has_device
        and (supports_access(managed, target) or request.readonly == READONLY_SHARE)
    )


cdef void decide(
    const Managed* managed, Target target, const Request* request, const Findings* findings, Decision* out,
) noexcept
cdef bint is_copy(const Decision* decision) noexcept nogil
cdef int32_t separate_steps(const Managed* managed) noexcept nogil
cdef bint is_for_host(const Managed* managed, Target target, const Request* request) noexcept
cdef bint is_misaligned(const Managed* managed, Target target) noexcept
cdef bint needs_kernel(const Managed* managed, const Decision* decision) noexcept
cdef uint8_t low_bits_of(const Managed* managed, Target target) noexcept
cdef bint is_bool(const Managed* managed) noexcept nogil
# Whether a device's memory has too many holes for all of its span to be fetched.
cdef bint is_spread(const Managed* managed) noexcept nogil
# The stride of adjacent elements: their bytes where strides are in bytes, otherwise 1.
cdef int64_t item_stride(const Managed* managed) noexcept nogil
