"""The decision: whether memory is shared, copied or refused, and the first reason."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, DLTensor, kDLCPU, kDLCUDA, kDLROCM
from dlbridge._core.atomic cimport load_rows
from dlbridge._core.block cimport Managed, managed_data
from dlbridge._core.devices.table cimport same_device
from dlbridge._core.facts cimport READ_ONLY, WRITABLE
from dlbridge._core.request cimport COPY_ALWAYS, READONLY_SHARE, Request
from dlbridge._core.targets.target cimport Target


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
    int32_t steps           # place.Step, or'ed; 0 to share
    Reason reason           # the first reason for a copy or a refusal, or what is to be said of memory that is shared
    Refused refused
    DLDevice upload         # where UPLOAD puts the memory


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
        and load_rows(&target.plain_rows) >> managed.row & 1
        and tensor.device.device_type == kDLCPU
        and <size_t> managed_data(managed) & target.low_bits[managed.row] == 0
        and request.copy < COPY_ALWAYS
        and (not request.has_device or same_device(&request.device, &tensor.device))
        and (supports_access(managed, target) or request.readonly == READONLY_SHARE)
    )


cdef inline bint fits_there(const Managed* managed, Target target, const Request* request) noexcept:
    """As fits(), of memory of a device that is neither pinned nor managed, where no device is asked for."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int32_t device_type = tensor.device.device_type
    return (
        device_type in (kDLCUDA, kDLROCM)
        and managed.marks & ~target.supports == 0
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
cdef bint is_for_host(const Managed* managed, Target target, const Request* request) noexcept
cdef bint is_misaligned(const Managed* managed, Target target) noexcept
cdef bint needs_kernel(const Managed* managed, const Decision* decision) noexcept
cdef uint8_t low_bits_of(const Managed* managed, Target target) noexcept
