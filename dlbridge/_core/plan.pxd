"""The plan: whether memory is shared or copied, and why."""

from libc.stdint cimport int32_t, uint32_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, DLTensor, kDLCPU
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
    OWN_FORM
    NO_SHARING
    OTHER_DEVICE
    READ_ONLY_MEMORY
    WRITABLE_MEMORY
    ANOTHER_HOST
    UNKEPT_COPY


# What the library and the driver have to be asked before a decision. They are asked only if it matters for this memory.
ctypedef struct Findings:
    bint readable           # whether the CPU can read this managed memory where it is
    bint kernel             # whether a library can make a compact copy of this device's memory, by its kernels
    int32_t host            # the target's device of the host, if it numbers them, for memory that is the host's

ctypedef struct Decision:
    int32_t steps           # place.Step, or'ed; 0 to share
    Reason reason           # the first reason that made a copy necessary
    DLDevice upload         # where UPLOAD puts the memory


cdef inline bint supports_access(const Managed* managed, Target target) noexcept nogil:
    """Whether the target has read-only arrays for read-only memory, or writable ones for writable memory."""
    return target.supports & (
        <uint32_t> READ_ONLY if managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY else <uint32_t> WRITABLE)

cdef inline bint is_aligned(const Managed* managed, Target target) noexcept nogil:
    """Whether memory of the host begins where the target's arrays do."""
    return <size_t> managed_data(managed) & target.low_bits[managed.row] == 0

cdef inline bint fits(const Managed* managed, Target target, const Request* request) noexcept:
    """Whether memory can be shared as it is: the target supports its marks, and the caller asks for nothing else.

    False does not mean that a copy is needed: decide() then finds what is needed.
    """
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    return (
        managed.marks & ~target.supports == 0
        and load_rows(&target.plain_rows) >> managed.row & 1
        and tensor.device.device_type == kDLCPU
        and is_aligned(managed, target)
        and request.copy != COPY_ALWAYS
        and (not request.has_device or same_device(&request.device, &tensor.device))
        and (supports_access(managed, target) or request.readonly == READONLY_SHARE)
    )


cdef int gather(const Managed* managed, Target target, const Request* request, Findings* out) except -1
cdef int decide(
    const Managed* managed, Target target, const Request* request, const Findings* findings, Decision* out,
) except -1
cdef bint is_copy(const Decision* decision) noexcept nogil
# The hint where one side could write what the other must not.
cdef str SHARE
cdef str reason_text(const Managed* managed, Target target, Reason reason)
cdef str reason_hint(const Managed* managed, Target target, Reason reason)
