"""The decision: whether memory is shared, copied or refused, and the first reason. No library is asked here."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLDataType, DLDevice, DLTensor, kDLBool, kDLCPU,
    kDLCUDA, kDLCUDAManaged,
)
from dlbridge._core.atomic cimport load_rows
from dlbridge._core.block cimport (
    BYTE_STRIDES, CONJUGATED, NEGATED, OWNS_MEMORY, PROTOCOL_ARROW, SWAPPED, Managed, managed_alone, managed_count,
    managed_data, managed_item_bytes, managed_nbytes, managed_packed, managed_span,
)
from dlbridge._core.devices.table cimport has_streams, is_host, is_pinned, same_device
from dlbridge._core.dtypes cimport NO_ROW, find_dlpack, get_row
from dlbridge._core.layout cimport BACKWARD, LENGTH_1, REPEATED, STRIDED, Span, has_overlap, is_dense
from dlbridge._core.request cimport (
    COPY_ALWAYS, COPY_NEVER, COPY_UNLESS_CONSTANT, READONLY_ERROR, READONLY_SHARE, Request, is_unordered,
)
from dlbridge._core.target cimport (
    ANY_ORDER, ANY_STRIDES, GAPS, HOST, NEGATIVE_STRIDES, ODD_STRIDES, OTHER_DEVICES, PACKED, PADDED, PINNED, READ_ONLY,
    SHARING, SWAPPED_BYTES, UNIFIED, ZERO_STRIDES, Target, uploads_to,
)


cdef enum:
    WASTEFUL = 1 << 24          # from this size on, a span with many holes is not fetched from a device
    HOLES_TOO_MANY = 4          # many holes: the span has more than so many times the bytes of the elements


cdef bint is_copy(const Decision* decision) noexcept nogil:
    return decision.steps & (COPIES | BY_PRODUCER)


cdef void decide(
    const Managed* managed, Target target, const Request* request, const Findings* findings, Decision* out,
) noexcept:
    """Decide what is done with the memory.

    This is a pure function of the memory, of what the target supports, of the keywords, and of the findings.
    """
    out.steps = 0
    out.reason = NO_REASON
    out.refused = NOT_REFUSED
    out.staged = False
    out.upload = DLDevice(kDLCPU, 0)
    if not target.fewest_axes <= managed.abi.dl_tensor.ndim <= target.most_axes:
        refuse(out, OTHER_AXES)
    # The tests in line save calls: most memory is the host's, is compact, and stays where it is.
    if request.has_device or managed.abi.dl_tensor.device.device_type != kDLCPU or not target.supports & HOST:
        decide_device(managed, target, request, findings, out)
    if managed.marks & (SWAPPED | NEGATED | CONJUGATED) or not load_rows(&target.plain_rows) >> managed.row & 1:
        decide_elements(managed, target, findings, out)
    if target.hosts and (out.steps & (LABEL_AS_HOST | FETCH) or managed.abi.dl_tensor.device.device_type == kDLCPU):
        decide_host_device(target, findings, out)
    if managed.marks:
        decide_layout(managed, target, request, out)
    if managed.marks & ~target.supports & LENGTH_1:
        out.steps |= RESET_LENGTH_1
    if not target.supports & SHARING:
        want(out, COPY_BY_TARGET, NO_SHARING)
    if request.copy >= COPY_ALWAYS and is_copy_asked(managed, request, findings) and not is_copy(out):
        want(out, copy_step(managed, target, out), COPY_ASKED)
        if request.copy == COPY_UNLESS_CONSTANT and out.steps & COPY and is_pinned(
                managed.abi.dl_tensor.device.device_type):
            out.steps |= IN_PINNED_MEMORY
    if target.copies_own and is_unkept_copy(managed) and not is_copy(out) and not out.steps & LABEL_AS_HOST:
        want(out, COPY_IN_TARGET, UNKEPT_COPY)
    if not (supports_access(managed, target) or findings.constant and is_immutable(target)) and (
            request.readonly != READONLY_SHARE and not is_copy(out)):
        decide_access(managed, target, request, out)
    # Access comes first, so that an address does not decide whether writable memory is shared.
    if not out.steps & COPIES & ~COPY_IN_TARGET and is_misaligned(managed, target):
        want(out, misaligned_steps(managed, target, out), MISALIGNED)
    if not out.refused:
        finish(managed, target, request, findings, out)
    if has_streams(managed.abi.dl_tensor.device.device_type) and not out.steps & REARRANGE:
        decide_order(managed, request, out)


cdef void finish(
    const Managed* managed, Target target, const Request* request, const Findings* findings, Decision* out,
) noexcept:
    """Decide whether the copy may be made, and by whom; and what there is to say of memory that is shared."""
    cdef bint elsewhere = managed.abi.dl_tensor.device.device_type != kDLCPU
    if request.copy == COPY_NEVER and is_copy(out):
        out.refused = NO_COPY
    elif findings.kernel and (
            needs_kernel(managed, out) or has_any_bytes(managed, out) or fetches_holes(managed, out)
            or copies_holes(managed, request, out)
            or (out.steps & NARROW and not is_host(managed.abi.dl_tensor.device.device_type))):     # less to fetch
        if fetches_holes(managed, out) and out.reason == OTHER_DEVICE:
            out.reason = SPREAD
        out.steps = REARRANGE | out.steps & NARROW
    elif elsewhere and needs_kernel(managed, out):
        out.refused = NO_KERNEL
    elif elsewhere and fetches_holes(managed, out):
        out.reason, out.refused = SPREAD, NO_KERNEL
    elif out.steps & COPY and (request.c_order or not target.supports & (ANY_STRIDES | ANY_ORDER)):
        out.steps |= IN_C_ORDER
    if out.steps & LABEL_AS_HOST and out.steps & IN_PINNED_MEMORY:
        out.steps ^= LABEL_AS_HOST | LABEL_COPY_AS_HOST         # the copy learns from the label that it is pinned
    if findings.copied and not out.refused:
        out.steps |= BY_PRODUCER
        out.reason = GATHERED_CHUNKS if managed.protocol == PROTOCOL_ARROW else GIVEN_COPY
    if out.reason:
        return
    if managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY and not target.supports & <uint32_t> READ_ONLY:
        out.reason = SHARED_READ_ONLY
    elif target.copies_own and has_streams(managed.abi.dl_tensor.device.device_type) and not out.steps:
        out.reason = SHARED_UNTIL_READ


cdef void decide_order(const Managed* managed, const Request* request, Decision* out) noexcept:
    """Decide which streams wait. If the host is to read the memory, the host waits, and no stream has to.

    stream=-1 is about the producer's work alone, and not about a copy of it that dlbridge queues on the device.
    """
    cdef bint unordered = is_unordered(request)
    cdef bint has_consumer = request.has_stream or request.current_stream != NULL
    if unordered or has_consumer and not out.steps & (LABEL_AS_HOST | LABEL_COPY_AS_HOST | FETCH):
        out.steps |= ORDER
    if unordered and out.steps & COPY_SPAN and request.current_stream != NULL and not (
            out.steps & LABEL_AS_HOST or is_read_by_host(managed, out)):
        out.steps |= ORDER_COPY


cdef void want(Decision* out, int32_t steps, Reason reason) noexcept:
    out.steps |= steps
    if out.reason == NO_REASON:
        out.reason = reason


cdef void refuse(Decision* out, Reason reason) noexcept:
    """Refuse, for the first reason that is found."""
    if not out.refused:
        out.reason, out.refused = reason, IN_ANY_FORM


cdef bint is_copy_asked(const Managed* managed, const Request* request, const Findings* findings) noexcept:
    """Whether the caller wants memory of his own, and this is not such memory yet."""
    if managed.owns == OWNS_MEMORY:
        return False
    return request.copy == COPY_ALWAYS or not (findings.constant or managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED)


cdef bint is_read_by_host(const Managed* managed, const Decision* decision) noexcept:
    """Whether the host makes the copy, as of pinned memory that is not labelled as its device's."""
    return is_host(managed.abi.dl_tensor.device.device_type) and not decision.steps & LABEL_AS_DEVICE


cdef int32_t copy_step(const Managed* managed, Target target, const Decision* decision) noexcept:
    """The copy of memory that stays where it is, and needs no other change.

    On a device, a library that does not tell its streams frees memory once the last work on it is queued. So a copy of
    dlbridge's own would be given back too early, and the library makes one.
    """
    if is_read_by_host(managed, decision):
        return COPY
    return COPY_IN_TARGET if target.copies_own and not decision.steps & LABEL_AS_HOST else COPY_SPAN


cdef int32_t misaligned_steps(const Managed* managed, Target target, const Decision* decision) noexcept:
    """The steps for memory whose only fault is its address. A library that makes its own copies copies dlbridge's."""
    if is_read_by_host(managed, decision) or decision.steps & LABEL_AS_HOST:
        return COPY
    return COPY_SPAN | COPY_IN_TARGET if target.copies_own else COPY_SPAN


cdef bint needs_kernel(const Managed* managed, const Decision* decision) noexcept:
    """Whether memory of a device would have to be rearranged there, which dlbridge itself cannot do."""
    cdef int32_t device_type = managed.abi.dl_tensor.device.device_type
    cdef int32_t steps = COPY | PACK | UNPACK | (0 if has_streams(device_type) else COPY_SPAN)
    return decision.steps & steps and not is_read_by_host(managed, decision) and not (
        decision.steps & (FETCH | LABEL_AS_HOST))


cdef bint fetches_holes(const Managed* managed, const Decision* decision) noexcept:
    """Whether many more bytes than the elements have would be fetched."""
    return decision.steps & FETCH and is_spread(managed)


cdef bint copies_holes(const Managed* managed, const Request* request, const Decision* decision) noexcept:
    """Whether the copy that each batch on a device needs would take the bytes between its elements, too."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    return request.copy == COPY_UNLESS_CONSTANT and decision.steps & COPY_SPAN and not is_host(
        tensor.device.device_type) and managed.marks & STRIDED and separate_steps(managed) == COPY and not is_dense(
        tensor.ndim, tensor.shape, tensor.strides, managed_count(managed))


cdef bint is_unkept_copy(const Managed* managed) noexcept:
    """Whether memory of a device was made by this conversion, or by its producer for it."""
    return managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED and not is_host(managed.abi.dl_tensor.device.device_type)


cdef bint has_any_bytes(const Managed* managed, const Decision* decision) noexcept:
    """Whether bools would be copied on a device as they lie, with bytes that may be neither 0 nor 1."""
    return is_bool(managed) and decision.steps & (COPY_SPAN | COPY_IN_TARGET) and not (
        is_read_by_host(managed, decision) or decision.steps & (FETCH | LABEL_AS_HOST)
        or managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED)


cdef bint is_for_host(const Managed* managed, Target target, const Request* request) noexcept:
    """Whether memory that is not labelled as the CPU's is to become the CPU's, by its label or by a copy."""
    cdef const DLDevice* device = &managed.abi.dl_tensor.device
    cdef bint pinned = is_pinned(device.device_type)
    cdef bint unified = device.device_type == kDLCUDAManaged
    if request.has_device and not same_device(&request.device, device):
        return request.device.device_type == kDLCPU
    return (pinned or unified) and not supports_label(target, pinned) and not is_for_device(target, unified)


cdef bint supports_label(Target target, bint pinned) noexcept:
    """Whether the target takes pinned memory, or managed memory, under its own device type."""
    return target.supports & <uint32_t> (PINNED if pinned else UNIFIED) and target.supports & OTHER_DEVICES


cdef bint is_for_device(Target target, bint unified) noexcept:
    """Whether the target takes pinned or managed memory as its device's.

    It does so if it has no host memory. A library with a current stream works on a device, so it takes managed memory
    there. It is not known where a library without a current stream works, such as JAX.
    """
    return (unified and target.current_stream != NULL) or not target.supports & HOST


cdef void decide_device(
    const Managed* managed, Target target, const Request* request, const Findings* findings, Decision* out,
) noexcept:
    """Decide where the memory shall be. It changes its device only if the caller asks for that."""
    cdef const DLDevice* device = &managed.abi.dl_tensor.device
    cdef const DLDevice* wanted = &request.device
    if is_for_host(managed, target, request):
        decide_host(managed, target, findings, out)
    elif not request.has_device or same_device(wanted, device):
        decide_label(managed, target, out)
    elif uploads_to(target, wanted.device_type) and is_host(device.device_type):
        # Pinned memory is copied like other host memory, under the CPU's label, since few libraries know pinned memory.
        out.steps |= LABEL_AS_HOST if device.device_type != kDLCPU else 0
        want(out, UPLOAD, OTHER_DEVICE)
        out.upload = wanted[0]
    elif wanted.device_type == kDLCUDA and device.device_type == kDLCUDAManaged and target.supports & OTHER_DEVICES:
        out.steps |= LABEL_AS_DEVICE        # the step then checks that it is the device that was asked for
    else:
        refuse(out, NOT_MOVED)


cdef void decide_host(const Managed* managed, Target target, const Findings* findings, Decision* out) noexcept:
    """Decide how memory becomes the CPU's: by a label if the CPU can read it where it is, otherwise by a copy."""
    if not target.supports & HOST:
        refuse(out, NO_HOST)
    elif is_host(managed.abi.dl_tensor.device.device_type) or findings.readable:
        out.steps |= LABEL_AS_HOST
    elif has_streams(managed.abi.dl_tensor.device.device_type):
        want(out, FETCH, OTHER_DEVICE)
    else:
        refuse(out, NOT_FETCHED)


cdef void decide_host_device(Target target, const Findings* findings, Decision* out) noexcept:
    """Decide on which of the target's devices of the host the memory shall be. Only the first shares memory."""
    if out.steps & UPLOAD:
        return
    out.upload = DLDevice(kDLCPU, findings.host)
    if findings.host >= target.hosts:
        refuse(out, NO_SUCH_HOST)
    # The target makes copies of its own where it makes new arrays.
    elif findings.host or (target.hosts > 1 and out.steps & COPY_BY_TARGET):
        want(out, UPLOAD, ANOTHER_HOST)


cdef void decide_label(const Managed* managed, Target target, Decision* out) noexcept:
    """Decide about memory that stays where it is. Pinned and managed memory may get the label of its device.

    decide_device() has already dealt with memory that gets the label of the host.
    """
    cdef const DLDevice* device = &managed.abi.dl_tensor.device
    cdef bint host = is_host(device.device_type)
    cdef bint pinned = is_pinned(device.device_type)
    cdef bint unified = device.device_type == kDLCUDAManaged
    if (pinned or unified) and not supports_label(target, pinned):
        out.steps |= LABEL_AS_DEVICE
    elif host:
        if not target.supports & HOST:
            refuse(out, HOST_MEMORY)
    # A build of torch for the CPU would make a tensor of device memory, but could do nothing with it.
    elif not target.supports & OTHER_DEVICES or (
            has_streams(device.device_type) and target.upload != NULL and not target.upload_types):
        refuse(out, DEVICE_MEMORY)
    elif 0 <= target.gpus <= device.device_id:
        refuse(out, NO_SUCH_GPU)


cdef void decide_elements(const Managed* managed, Target target, const Findings* findings, Decision* out) noexcept:
    """Decide what place must do to the elements: their type, byte order, lazy bits, and those below a byte."""
    cdef int row = findings.row
    if row != managed.row:
        want(out, COPY | NARROW, WIDE_TYPE)
    if managed.marks & SWAPPED and not target.supports & SWAPPED_BYTES:
        want(out, COPY, BYTE_ORDER)
    if managed.marks & (NEGATED | CONJUGATED):
        want(out, COPY, LAZY_BITS)
    if target.copied_rows >> row & 1:
        want(out, COPY_BY_TARGET, ELEMENT_FORM)
    elif not findings.takes:
        want(out, COPY_BY_TARGET, OWN_FORM)
    if not target.rows >> row & 1 or get_row(row).subbyte:
        decide_small_elements(managed, target, out)


cdef void decide_small_elements(const Managed* managed, Target target, Decision* out) noexcept:
    """Decide about elements below a byte. A target that lacks their type may have it in pairs, or singly."""
    cdef DLDataType dtype = managed.abi.dl_tensor.dtype
    cdef bint has_row = target.rows >> managed.row & 1
    cdef bint packed = managed_packed(managed)
    cdef int pairs
    if dtype.lanes == 2:
        decide_pairs(managed, target, out)
        return
    dtype.lanes = 2
    pairs = find_dlpack(dtype) if get_row(managed.row).subbyte else NO_ROW
    if has_row and target.supports & (PACKED if packed else PADDED):
        return
    if has_row and target.supports & (PADDED if packed else PACKED):
        want(out, UNPACK if packed else pack_steps(managed), ELEMENT_FORM)
    elif pairs != NO_ROW and target.rows >> pairs & 1:
        decide_to_pairs(managed, out, packed)
    else:
        refuse(out, LACKED_TYPE)


cdef void decide_to_pairs(const Managed* managed, Decision* out, bint packed) noexcept:
    cdef int32_t ndim = managed.abi.dl_tensor.ndim
    if ndim == 0 or managed.abi.dl_tensor.shape[ndim - 1] % 2:
        refuse(out, ODD_EXTENT)
        return
    out.steps |= PACKED_TO_PAIRS
    if not packed:
        want(out, pack_steps(managed), ELEMENT_FORM)


cdef void decide_pairs(const Managed* managed, Target target, Decision* out) noexcept:
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef DLDataType dtype = tensor.dtype
    cdef int single
    dtype.lanes = 1
    single = find_dlpack(dtype)
    if single == NO_ROW or not target.rows >> single & 1 or not target.supports & (PACKED | PADDED) or not tensor.ndim:
        refuse(out, LACKED_TYPE)
        return
    if managed.marks & STRIDED:
        want(out, COPY, HOLES)
    out.steps |= PAIRS_TO_PACKED
    if not target.supports & PACKED:
        want(out, UNPACK, ELEMENT_FORM)


cdef void decide_layout(const Managed* managed, Target target, const Request* request, Decision* out) noexcept:
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int32_t supports = target.supports
    if out.steps & COPY or managed_packed(managed):
        return
    if managed.marks & BYTE_STRIDES and not supports & ODD_STRIDES:
        want(out, COPY, ODD_STRIDE)
    elif managed.marks & BACKWARD and not supports & NEGATIVE_STRIDES:
        want(out, COPY, NEGATIVE_STRIDE)
    elif managed.marks & REPEATED and not supports & ZERO_STRIDES:
        want(out, COPY, ZERO_STRIDE)
    elif managed.marks & STRIDED and not supports & ANY_STRIDES and not is_dense(
            tensor.ndim, tensor.shape, tensor.strides, managed_count(managed)):
        want(out, COPY, HOLES)
    elif managed.marks & STRIDED and not supports & (ANY_STRIDES | ANY_ORDER):
        want(out, COPY, AXIS_ORDER)
    elif not supports & GAPS and has_gaps(managed):
        want(out, COPY, HOLES)
    elif request.c_order and managed.marks & (BYTE_STRIDES | BACKWARD | REPEATED | STRIDED):
        want(out, COPY, ORDER_ASKED)


cdef bint is_misaligned(const Managed* managed, Target target) noexcept:
    return not managed_packed(managed) and managed_count(managed) and (
        <size_t> managed_data(managed) & low_bits_of(managed, target) != 0)


cdef uint8_t low_bits_of(const Managed* managed, Target target) noexcept:
    """The bits of the address that must be 0, where the memory is. Managed memory counts as the host's."""
    cdef int32_t device_type = managed.abi.dl_tensor.device.device_type
    cdef bint host = is_host(device_type) or device_type == kDLCUDAManaged
    return target.low_bits[managed.row] if host else target.device_low_bits[managed.row]


cdef void decide_access(const Managed* managed, Target target, const Request* request, Decision* out) noexcept:
    """Decide about memory that is read-only on one side and writable on the other, unless the caller shares it."""
    cdef bint writable = not managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY
    cdef Reason reason = WRITABLE_MEMORY if writable else READ_ONLY_VIEW if is_immutable(target) else READ_ONLY_MEMORY
    cdef bint host = is_read_by_host(managed, out)
    if managed_count(managed) == 0:
        return
    if writable and managed_alone(managed) and (host or not target.copies_own):
        out.steps |= SEAL
    elif request.readonly != READONLY_ERROR:
        want(out, separate_steps(managed) if host else copy_step(managed, target, out), reason)
    elif not out.refused:
        out.reason, out.refused = reason, BY_POLICY


# ---- the memory ------------------------------------------------------------------------------------------------------

cdef bint is_bool(const Managed* managed) noexcept nogil:
    """Whether elements are bools, of which a copy has only the bytes 0 and 1.

    Libraries compute with any other byte as it is: JAX adds a bool of 255 as 255.
    """
    return managed.abi.dl_tensor.dtype.code == kDLBool and managed.abi.dl_tensor.dtype.bits == 8


cdef bint is_spread(const Managed* managed) noexcept nogil:
    cdef Span span = managed_span(managed)
    cdef int64_t nbytes = span.high_bytes - span.low_bytes
    return nbytes > WASTEFUL and nbytes // HOLES_TOO_MANY > managed_nbytes(managed)


cdef bint has_gaps(const Managed* managed) noexcept nogil:
    """Whether the touched bytes, from the first to the last, are more than the elements have."""
    cdef Span span = managed_span(managed)
    return span.high_bytes - span.low_bytes > managed_nbytes(managed)


cdef int32_t separate_steps(const Managed* managed) noexcept nogil:
    """The step that copies memory which needs no other change: of a broadcast array only the few bytes that it touches.

    Sliding windows touch few bytes too. Each of their elements gets its own, or one write would change several.
    """
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef Span span
    if not managed.marks:
        return COPY
    span = managed_span(managed)
    if span.high_bytes - span.low_bytes >= managed_nbytes(managed):
        return COPY
    return COPY if has_overlap(tensor.ndim, tensor.shape, tensor.strides, item_stride(managed)) else COPY_SPAN


cdef int32_t pack_steps(const Managed* managed) noexcept nogil:
    """The steps that pack elements of a byte each. PACK reads compact memory, so other memory is copied first."""
    return COPY | PACK if managed.marks & STRIDED else PACK


cdef int64_t item_stride(const Managed* managed) noexcept nogil:
    return managed_item_bytes(managed) if managed.marks & BYTE_STRIDES else 1
