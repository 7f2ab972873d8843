"""Validation: what a struct can reveal is checked once, on every path, before any library sees the memory."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION,
    DLManagedTensorVersioned,
    DLTensor,
    kDLCPU,
    kDLCUDA,
    kDLCUDAHost,
    kDLCUDAManaged,
    kDLOneAPI,
    kDLOpenCL,
    kDLROCM,
    kDLROCMHost,
    kDLTrn,
    kDLVulkan,
)
from dlbridge._core.block cimport (
    BYTE_STRIDES,
    MAX_NDIM,
    Managed,
    Protocol,
    managed_count,
    managed_data,
    managed_new,
    managed_own_versioned,
    managed_packed,
    managed_release,
    managed_shape,
    managed_strides,
    protocol_name,
)
from dlbridge._core.dtypes cimport NO_ROW, describe, find_dlpack, get_row
from dlbridge._core.layout cimport (
    BACKWARD,
    IDLE,
    LARGEST_SPAN,
    LAYOUT_SOUND,
    NEGATIVE_EXTENT,
    REPEATED,
    SPAN_TOO_LARGE,
    STRIDED,
    TOO_MANY_ELEMENTS,
    LayoutFault,
    fill_compact,
    is_plain,
    multiply_overflows,
    settle,
)
from dlbridge._core.view cimport View

from dlbridge.errors import REPORT, ConversionError, DeviceError, refusal

cdef enum:
    FORM = BACKWARD | REPEATED | STRIDED | IDLE
    KNOWN_FLAGS = (
        DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)

# The devices whose data is an address, to which an offset can be added. On the others it is a handle (OpenCL's cl_mem).
cdef uint32_t ADDRESSED = (
    1 << kDLCPU | 1 << kDLCUDA | 1 << kDLCUDAHost | 1 << kDLROCM | 1 << kDLROCMHost | 1 << kDLCUDAManaged
    | 1 << kDLOneAPI)


# ---- foreign structs -----------------------------------------------------------------------------------------------

cdef Managed* managed_from_tensor(Protocol protocol, const DLTensor* tensor, uint64_t flags) except NULL:
    """An unowned, validated block that describes a foreign DLTensor. Of its pointers only data is kept.

    Shape and strides are copied, so that a producer that changes them later changes nothing that was checked.
    """
    cdef Managed* managed = managed_new(protocol, tensor.ndim)
    cdef DLTensor* ours = &managed.abi.dl_tensor
    cdef int32_t axis
    managed.abi.flags = flags & KNOWN_FLAGS
    ours.data = tensor.data
    ours.byte_offset = tensor.byte_offset
    ours.device = tensor.device
    ours.dtype = tensor.dtype
    if tensor.ndim:
        if tensor.shape == NULL:
            managed_release(managed)
            raise refusal(ConversionError, protocol_name(protocol), "shape", "NULL",
                          f"has no extents for ndim {tensor.ndim}", REPORT)
        for axis in range(tensor.ndim):
            ours.shape[axis] = tensor.shape[axis]
            if tensor.strides != NULL:
                ours.strides[axis] = tensor.strides[axis]
        if tensor.strides == NULL:
            # DLPack before 1.2: NULL strides mean compact memory in C order.
            fill_compact(tensor.ndim, ours.shape, ours.strides)
    return managed_checked(managed)


cdef Managed* managed_take_versioned(Protocol protocol, DLManagedTensorVersioned* foreign) except NULL:
    """A validated block that owns a foreign DLManagedTensorVersioned, which is let go on failure."""
    cdef Managed* managed
    try:
        if foreign.version.major != DLPACK_MAJOR_VERSION:
            raise refusal(ConversionError, protocol_name(protocol), "version", foreign.version.major,
                          "is a major version that dlbridge does not read", "update dlbridge")
        managed = managed_from_tensor(protocol, &foreign.dl_tensor, foreign.flags)
    except BaseException:
        if foreign.deleter != NULL:
            foreign.deleter(foreign)
        raise
    managed_own_versioned(managed, foreign)
    return managed


# ---- the checks -----------------------------------------------------------------------------------------------------

cdef Managed* managed_checked(Managed* managed) except NULL:
    """Validate a block, and derive its row and marks; on failure the block is released."""
    cdef int64_t count = 0
    cdef int fault = dtype_fault(managed) or layout_fault(managed, &count) or memory_fault(managed, count)
    if fault:
        raise refused(managed, fault)
    return managed


cdef enum Fault:                # the numbers go on after those of layout.LayoutFault
    UNKNOWN_DTYPE = 16
    PACKED_WITH_GAPS
    NO_MEMORY
    UNKNOWN_DEVICE
    FAR_OFFSET


cdef int dtype_fault(Managed* managed) noexcept nogil:
    if managed.row == NO_ROW:
        managed.row = find_dlpack(managed.abi.dl_tensor.dtype)
        if managed.row == NO_ROW:
            return UNKNOWN_DTYPE
    if managed.abi.dl_tensor.dtype.bits >= 8:
        managed.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED     # it says nothing of these
    return 0


cdef int layout_fault(Managed* managed, int64_t* count) noexcept nogil:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef bint in_bytes = managed.marks & BYTE_STRIDES
    cdef bint packed = managed_packed(managed)
    # This is 1 for packed elements, whose strides are below a byte. They must be compact anyway.
    cdef int64_t item_bytes = get_row(managed.row).item_bytes
    cdef LayoutFault fault
    cdef uint32_t form
    managed.marks &= ~FORM
    if not (in_bytes or packed) and is_plain(tensor.ndim, tensor.shape, tensor.strides, count):
        return 0
    fault = settle(
        tensor.ndim, tensor.shape, tensor.strides, 1 if in_bytes else item_bytes, item_bytes, count, &form)
    if fault:
        return fault
    managed.marks |= form
    if packed:
        if count[0] > LARGEST_SPAN // tensor.dtype.bits:
            return TOO_MANY_ELEMENTS        # managed_nbytes() computes the number of bits first, which must fit
        if form & STRIDED:
            return PACKED_WITH_GAPS
    return 0


cdef int memory_fault(Managed* managed, int64_t count) noexcept nogil:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    if tensor.data == NULL and count:
        return NO_MEMORY
    if tensor.device.device_type != kDLCPU and not is_device(tensor.device.device_type):
        return UNKNOWN_DEVICE
    if tensor.byte_offset > <uint64_t> LARGEST_SPAN:
        return FAR_OFFSET
    if tensor.byte_offset and 1 << tensor.device.device_type & ADDRESSED:
        # The offset is added to the address: nearly every producer leaves byte_offset at 0, and some consumers refuse
        # any other (cutlass#3450).
        tensor.data = managed_data(managed)
        tensor.byte_offset = 0
    return 0


cdef bint is_device(int32_t device_type) noexcept nogil:
    # C enums are unsigned, so a negative type would pass without the casts.
    return <int> kDLCPU <= device_type <= <int> kDLOpenCL or <int> kDLVulkan <= device_type <= <int> kDLTrn


cdef bint view_checked(View* view) noexcept nogil:
    cdef DLTensor* tensor = &view.tensor
    cdef int64_t* extents = tensor.shape
    cdef int64_t* steps = tensor.strides
    cdef int64_t* shape = view.room
    cdef int64_t* strides = shape + tensor.ndim
    cdef int row = find_dlpack(tensor.dtype)
    cdef int64_t extent, step
    cdef int64_t count = 1
    cdef bint plain = True
    cdef uint32_t form
    cdef int32_t axis = tensor.ndim
    if row == NO_ROW or get_row(row).subbyte or tensor.device.device_type != kDLCPU:
        return False
    if not 0 <= tensor.ndim <= MAX_NDIM or (tensor.ndim and (extents == NULL or steps == NULL)):
        return False
    tensor.shape, tensor.strides = shape, strides
    while axis:
        axis -= 1
        extent, step = extents[axis], steps[axis]
        shape[axis], strides[axis] = extent, step
        # The same test as is_plain(), in one loop with the copy.
        if extent < 1 or step != count or multiply_overflows(count, extent, &count):
            plain = False
    if not (plain and count <= LARGEST_SPAN >> 8) and settle(
            tensor.ndim, tensor.shape, tensor.strides, get_row(row).item_bytes, get_row(row).item_bytes, &count, &form):
        return False
    if tensor.byte_offset > <uint64_t> LARGEST_SPAN or (tensor.data == NULL and count):
        return False
    tensor.data = <char*> tensor.data + tensor.byte_offset
    tensor.byte_offset = 0
    return True


cdef bint view_strided(
    View* view, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes, int row,
) noexcept nogil:
    cdef DLTensor* tensor = &view.tensor
    cdef int64_t item_bytes = get_row(row).item_bytes
    cdef int64_t count
    cdef uint32_t form
    cdef int32_t axis
    for axis in range(tensor.ndim):
        if strides_bytes[axis] & item_bytes - 1:
            return False
        tensor.shape[axis] = shape[axis]
        tensor.strides[axis] = strides_bytes[axis] >> get_row(row).item_shift
    return settle(tensor.ndim, tensor.shape, tensor.strides, item_bytes, item_bytes, &count, &form) == LAYOUT_SOUND


# For each Fault: the error, its field, what is wrong, and the hint. Names in braces are filled in.
cdef dict FAULTS = {
    UNKNOWN_DTYPE: (ConversionError, "dtype", "is no type that dlbridge knows",
                    "view it as integers of the same size first"),
    NEGATIVE_EXTENT: (ConversionError, "shape", "has a negative extent", REPORT),
    TOO_MANY_ELEMENTS: (ConversionError, "shape", "has more bytes than any memory", REPORT),
    SPAN_TOO_LARGE: (ConversionError, "strides", "of shape {shape} reach beyond any memory", REPORT),
    PACKED_WITH_GAPS: (ConversionError, "strides", "of packed {dtype} are not compact", "make it contiguous first"),
    NO_MEMORY: (ConversionError, "data", "has no memory for {count} elements",
                "materialise it first: fake, meta, functionalized and resized tensors have none"),
    UNKNOWN_DEVICE: (DeviceError, "device_type", "is no device of DLPack 1.3",
                     "update dlbridge, or move it to the CPU"),
    FAR_OFFSET: (ConversionError, "byte_offset", "is beyond any address", REPORT),
}


cdef object refused(Managed* managed, int fault):
    """The error for a fault; the block is released."""
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    try:
        error, field, wrong, hint = FAULTS[fault]
        values = {
            "dtype": describe(tensor.dtype),
            "shape": managed_shape(managed),
            "strides": managed_strides(managed),
            # With other faults the count may not fit into 64 bits.
            "count": managed_count(managed) if fault == NO_MEMORY else None,
            "data": "NULL",
            "device_type": tensor.device.device_type,
            "byte_offset": tensor.byte_offset,
        }
        return refusal(error, protocol_name(<Protocol> managed.protocol), field, values[field], wrong.format(**values),
                       hint)
    finally:
        managed_release(managed)
