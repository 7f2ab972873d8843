"""The plan: whether memory is shared or copied, and why."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    DLDataType,
    DLDevice,
    DLTensor,
    kDLCPU,
    kDLCUDA,
    kDLCUDAManaged,
)
from dlbridge._core.atomic cimport load_rows
from dlbridge._core.block cimport (
    BYTE_STRIDES,
    CONJUGATED,
    NEGATED,
    OWNS_MEMORY,
    PROTOCOL_EXCHANGE_API,
    SWAPPED,
    Managed,
    managed_alone,
    managed_count,
    managed_data,
    managed_packed,
    managed_shape,
    managed_strides,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, device_name, has_streams, is_host, same_device
from dlbridge._core.dtypes cimport dtype_name, find_dlpack, find_name, get_row, row_name
from dlbridge._core.facts cimport (
    ANY_ORDER,
    ANY_STRIDES,
    HOST,
    NEGATIVE_STRIDES,
    ODD_STRIDES,
    OTHER_DEVICES,
    PACKED,
    PADDED,
    PINNED,
    SHARING,
    SWAPPED_BYTES,
    UNIFIED,
    ZERO_STRIDES,
)
from dlbridge._core.layout cimport BACKWARD, LENGTH_1, REPEATED, STRIDED, is_dense
from dlbridge._core.place cimport (
    COPY,
    COPY_BY_TARGET,
    COPY_IN_TARGET,
    COPY_SPAN,
    COPY_THERE,
    FETCH,
    IN_C_ORDER,
    PACK,
    PACKED_TO_PAIRS,
    PAIRS_TO_PACKED,
    REARRANGE,
    RESET_LENGTH_1,
    SEAL,
    TO_DEVICE_LABEL,
    TO_HOST_LABEL,
    UNPACK,
    UPLOAD,
    contiguous_hint,
    is_bool,
    order_hint,
    pack_steps,
    separate_steps,
)
from dlbridge._core.request cimport COPY_ALWAYS, COPY_NEVER, READONLY_ERROR, READONLY_SHARE, Request
from dlbridge._core.sources.offer cimport hints
from dlbridge._core.targets.target cimport Target

from dlbridge.errors import ConversionError, CopyRequiredError, DeviceError, refusal


cdef enum:
    COPIES = COPY | COPY_SPAN | PACK | UNPACK | COPY_BY_TARGET | COPY_IN_TARGET | FETCH | UPLOAD | REARRANGE

# In place of hints that depend on who has the memory.
cdef str CONTIGUOUS = "make it contiguous"
cdef str NATIVE = "swap its bytes"
cdef str ALIGNED = 'pass dlbridge.convert(x, "numpy", copy=True), which is aligned'
cdef str SHARE = 'pass readonly="share" and do not write'
# For each reason: the field, why it makes a copy necessary, and the hint.
cdef dict REASONS = {
    COPY_ASKED: ("copy", "was asked for", "pass copy=None"),
    BYTE_ORDER: ("byte order", "is not this machine's, and {target} has no other", NATIVE),
    LAZY_BITS: ("lazy bits", "negate or conjugate, which memory alone does not", "pass x.resolve_conj().resolve_neg()"),
    ODD_STRIDE: ("strides", "{strides} in bytes are no multiples of the item size, and {target} counts in elements",
                 CONTIGUOUS),
    NEGATIVE_STRIDE: ("strides", "{strides} go backwards, which {target} does not support", CONTIGUOUS),
    ZERO_STRIDE: ("strides", "{strides} repeat elements, which {target} does not support", CONTIGUOUS),
    HOLES: ("strides", "{strides} of shape {shape} leave holes, which {target} does not support", CONTIGUOUS),
    AXIS_ORDER: ("strides", "{strides} of shape {shape} are not in C order, which {target} needs", CONTIGUOUS),
    MISALIGNED: ("data", "at {data:#x} is not aligned to {alignment} bytes, which {target} needs to share",
                 ALIGNED),
    ELEMENT_FORM: ("dtype", "{dtype} has its bits in another place than {target} has them",
                   "nothing to do: bits must move"),
    OWN_FORM: ("memory", "is copied by {target}, which {takes}", "nothing to do: it is copied"),
    NO_SHARING: ("memory", "of others is nothing that {target} can use", "nothing to do: it is copied"),
    OTHER_DEVICE: ("device", "is another one than where the memory is", "pass device=None, or an array that is there"),
    READ_ONLY_MEMORY: ("readonly", "memory would become writable, since {target} cannot be told otherwise",
                       SHARE),
    WRITABLE_MEMORY: ("memory", "is writable, and the arrays of {target} must not change", SHARE),
    UNKEPT_COPY: ("memory", "is a copy that nobody keeps until {target}, which does not say when, has read it",
                  "nothing to do: it is copied"),
    ANOTHER_HOST: ("device", "is not the first of the host's, on which {target} shares memory", 'pass device="cpu:0"'),
}


# What readonly="error" says of them.
cdef dict ACCESS = {
    READ_ONLY_MEMORY: "the memory is read-only, and {target} cannot be told",
    WRITABLE_MEMORY: "the memory is writable, and the arrays of {target} must not change",
}


cdef bint is_copy(const Decision* decision) noexcept nogil:
    return decision.steps & COPIES


cdef str reason_words(const Managed* managed, Target target, Reason reason):
    """Why a field makes a copy necessary."""
    return REASONS[reason][1].format(
        target=target.name, strides=managed_strides(managed), shape=managed_shape(managed),
        data=<size_t> managed_data(managed), alignment=low_bits_of(managed, target) + 1,
        dtype=dtype_name(managed.abi.dl_tensor.dtype), takes=target.facts.takes.words if target.facts.takes else "")


cdef str reason_text(const Managed* managed, Target target, Reason reason):
    return f"{REASONS[reason][0]} {reason_words(managed, target, reason)}"


cdef str reason_hint(const Managed* managed, Target target, Reason reason):
    """What to do about a reason. Where an address would be the next, the hint is about both."""
    hint = REASONS[reason][2]
    if hint is SHARE and is_misaligned(managed, target) and is_host(managed.abi.dl_tensor.device.device_type):
        return f'{ALIGNED}, with readonly="share"'
    if hint is CONTIGUOUS:
        return contiguous_hint(managed)
    return order_hint(managed) if hint is NATIVE else hint


cdef object copy_required(const Managed* managed, Target target, const Decision* decision):
    cdef Reason reason = decision.reason
    hint = f"{reason_hint(managed, target, reason)}, or pass copy=None"
    return refusal(CopyRequiredError, target.name, REASONS[reason][0], reason_words(managed, target, reason),
                   "needs a copy, and copy=False forbids it", COPY_THERE if needs_kernel(managed, decision) else hint)


cdef int gather(const Managed* managed, Target target, const Request* request, Findings* out) except -1:
    """Ask the library and the driver what decide() has to know about this memory. What the library refuses is raised.
    """
    if request.has_device and request.device.device_id > 0 and has_streams(request.device.device_type):
        device_operations().check_device(&request.device)
    refused = target.why_not(managed) if target.asked_rows >> managed.row & 1 else None
    if refused is not None:
        raise refused
    out.readable = managed.abi.dl_tensor.device.device_type == kDLCUDAManaged and is_for_host(
        managed, target, request) and device_operations().is_readable(<Managed*> managed)
    out.host = max(0, request.device.device_id) if request.has_device else 0
    if target.hosts > 1 and not request.has_device:
        out.host = target.facts.default_host.value(target.namespace)
    return 0


cdef int decide(
    const Managed* managed, Target target, const Request* request, const Findings* findings, Decision* out,
) except -1:
    """Decide what is done with the memory.

    This is a pure function of the memory, of what the target supports, of the keywords, and of what was gathered.
    """
    out.steps = 0
    out.reason = NO_REASON
    if not target.fewest_axes <= managed.abi.dl_tensor.ndim <= target.most_axes:
        raise refusal(ConversionError, target.name, "shape", managed_shape(managed),
                      f"has {managed.abi.dl_tensor.ndim} axes, and {target.name} takes {target.fewest_axes} to "
                      f"{target.most_axes}", "reshape it")
    decide_device(managed, target, request, findings, out)
    if managed.marks & (SWAPPED | NEGATED | CONJUGATED) or not load_rows(&target.plain_rows) >> managed.row & 1:
        decide_elements(managed, target, out)
    if target.hosts and (out.steps & (TO_HOST_LABEL | FETCH) or managed.abi.dl_tensor.device.device_type == kDLCPU):
        decide_host_device(target, findings, out)
    decide_layout(managed, target, out)
    if managed.marks & ~target.supports & LENGTH_1:
        out.steps |= RESET_LENGTH_1
    if not target.supports & SHARING:
        want(out, COPY_BY_TARGET, NO_SHARING)
    if request.copy == COPY_ALWAYS and not is_copy(out) and managed.owns != OWNS_MEMORY:
        want(out, copy_step(managed, target, out), COPY_ASKED)
    if target.copies_own and is_unkept_copy(managed) and not is_copy(out) and not out.steps & TO_HOST_LABEL:
        want(out, COPY_IN_TARGET, UNKEPT_COPY)
    if not supports_access(managed, target) and request.readonly != READONLY_SHARE and not is_copy(out):
        decide_access(managed, target, request, out)
    # Access comes first, so that an address does not decide whether writable memory is shared.
    if is_misaligned(managed, target) and not out.steps & COPIES & ~COPY_IN_TARGET:
        want(out, misaligned_steps(managed, target, out), MISALIGNED)
    if request.copy == COPY_NEVER and is_copy(out):
        raise copy_required(managed, target, out)
    if findings.kernel and (needs_kernel(managed, out) or has_any_bytes(managed, out)):
        out.steps = REARRANGE
        return 0
    if needs_kernel(managed, out):
        raise refusal(DeviceError, target.name, REASONS[out.reason][0], reason_words(managed, target, out.reason),
                      f"needs a copy, which cannot be made on {device_name(managed.abi.dl_tensor.device)}",
                      kernel_hint(managed, out.reason))
    if not target.supports & (ANY_STRIDES | ANY_ORDER):
        out.steps |= IN_C_ORDER if out.steps & COPY else 0
    return 0


cdef int32_t copy_step(const Managed* managed, Target target, const Decision* decision) noexcept:
    """The copy of memory that stays where it is, and needs no other change.

    On a device, a library whose streams nobody can ask for releases memory when its last use is queued. So a copy of
    dlbridge's own would be given back too early, and the library makes one.
    """
    if is_host(managed.abi.dl_tensor.device.device_type):
        return COPY
    return COPY_IN_TARGET if target.copies_own and not decision.steps & TO_HOST_LABEL else COPY_SPAN


cdef int32_t misaligned_steps(const Managed* managed, Target target, const Decision* decision) noexcept:
    """The copy of memory whose address is its only fault. A library that copies shared memory itself copies that."""
    if is_host(managed.abi.dl_tensor.device.device_type) or decision.steps & TO_HOST_LABEL:
        return COPY
    return COPY_SPAN | COPY_IN_TARGET if target.copies_own else COPY_SPAN


cdef bint needs_kernel(const Managed* managed, const Decision* decision) noexcept:
    """Whether memory of a device would have to be rearranged there. dlbridge copies its bytes as they lie."""
    cdef int32_t device_type = managed.abi.dl_tensor.device.device_type
    cdef int32_t steps = COPY | PACK | UNPACK | (0 if has_streams(device_type) else COPY_SPAN)
    return decision.steps & steps and not is_host(device_type) and not decision.steps & (FETCH | TO_HOST_LABEL)


cdef str kernel_hint(const Managed* managed, Reason reason):
    """What to do about memory for which no library with kernels was found. None swaps bytes or packs elements."""
    of_strides = reason in (NEGATIVE_STRIDE, ZERO_STRIDE, HOLES, AXIS_ORDER)
    return hints().NO_KERNEL if of_strides and has_streams(managed.abi.dl_tensor.device.device_type) else COPY_THERE


cdef bint is_unkept_copy(const Managed* managed) noexcept:
    """Whether memory of a device was made by this conversion, or by its producer for it."""
    return managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED and not is_host(managed.abi.dl_tensor.device.device_type)


cdef bint has_any_bytes(const Managed* managed, const Decision* decision) noexcept:
    """Whether bools would be copied on a device as they lie. A copy of bools has only the bytes 0 and 1."""
    return is_bool(managed) and decision.steps & (COPY_SPAN | COPY_IN_TARGET) and not (
        is_host(managed.abi.dl_tensor.device.device_type) or decision.steps & (FETCH | TO_HOST_LABEL)
        or managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED)


cdef void want(Decision* out, int32_t steps, Reason reason) noexcept:
    out.steps |= steps
    if out.reason == NO_REASON:
        out.reason = reason


cdef bint is_for_host(const Managed* managed, Target target, const Request* request) noexcept:
    """Whether memory that is not labelled as the CPU's is to become the CPU's, by its label or by a copy."""
    cdef const DLDevice* device = &managed.abi.dl_tensor.device
    cdef bint pinned = is_host(device.device_type) and device.device_type != kDLCPU
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


cdef int decide_device(
    const Managed* managed, Target target, const Request* request, const Findings* findings, Decision* out,
) except -1:
    """Decide where the memory shall be. It changes its device only if the caller asks for that."""
    cdef const DLDevice* device = &managed.abi.dl_tensor.device
    cdef const DLDevice* wanted = &request.device
    if is_for_host(managed, target, request):
        return decide_host(managed, target, findings, out)
    if not request.has_device or same_device(wanted, device):
        return decide_label(managed, target, out)
    if wanted.device_type == target.upload_type and is_host(device.device_type):
        # Pinned memory is copied like other host memory, under the CPU's label, since not every library knows its own.
        out.steps |= TO_HOST_LABEL if device.device_type != kDLCPU else 0
        want(out, UPLOAD, OTHER_DEVICE)
        out.upload = wanted[0]
        return 0
    if wanted.device_type == kDLCUDA and device.device_type == kDLCUDAManaged and target.supports & OTHER_DEVICES:
        out.steps |= TO_DEVICE_LABEL        # hand_over() then checks that it is the device that was asked for
        return 0
    raise not_moved(managed, target, wanted)


cdef object not_moved(const Managed* managed, Target target, const DLDevice* wanted):
    there = device_name(wanted[0])
    wrong, hint = f"is not {there}, and dlbridge does not move it there", "move it with the library that made it"
    kind, colon, index = there.partition(":")
    move = target.facts.moves.get(kind)
    if move is not None:
        hint = f'call dlbridge.convert(x, "{target.name}"){move.format(colon + index)}'
    elif not target.supports & OTHER_DEVICES:
        wrong, hint = f"is not {there}, and {target.name} has memory of the host alone", "leave out device="
    if has_streams(wanted.device_type) and is_host(managed.abi.dl_tensor.device.device_type):
        from dlbridge._core.devices.cuda import require_driver

        try:
            require_driver(wanted.device_type)
        except DeviceError:
            name = "CUDA" if wanted.device_type == kDLCUDA else "ROCm"
            wrong, hint = f"is not {there}, and no {name} driver was found", "leave out device="
    return refusal(DeviceError, target.name, "device", device_name(managed.abi.dl_tensor.device), wrong, hint)


cdef int decide_host(
    const Managed* managed, Target target, const Findings* findings, Decision* out,
) except -1:
    """Decide how memory becomes the CPU's: by a label if the CPU can read it where it is, otherwise by a copy."""
    cdef int32_t device_type = managed.abi.dl_tensor.device.device_type
    if not target.supports & HOST:
        raise refusal(DeviceError, target.name, "device", "cpu",
                      f"is the host, whose memory {target.name} does not have", 'convert it to "numpy"')
    if is_host(device_type) or findings.readable:
        out.steps |= TO_HOST_LABEL
    else:
        want(out, FETCH, OTHER_DEVICE)
    return 0


cdef int decide_host_device(Target target, const Findings* findings, Decision* out) except -1:
    """Decide on which of the target's devices of the host the memory shall be. It is shared on the first alone."""
    if out.steps & UPLOAD:
        return 0
    out.upload = DLDevice(kDLCPU, findings.host)
    if findings.host >= target.hosts:
        raise refusal(DeviceError, target.name, "device", f"cpu:{findings.host}",
                      f"is none of the {target.hosts} of the host that {target.name} sees", 'pass device="cpu"')
    # The target makes copies of its own where it makes new arrays.
    if findings.host or (target.hosts > 1 and out.steps & COPY_BY_TARGET):
        want(out, UPLOAD, ANOTHER_HOST)
    return 0


cdef int decide_label(const Managed* managed, Target target, Decision* out) except -1:
    """Decide about memory that stays where it is. Pinned and managed memory may get the label of its device.

    decide_device() has already dealt with memory that gets the label of the host.
    """
    cdef const DLDevice* device = &managed.abi.dl_tensor.device
    cdef bint host = is_host(device.device_type)
    cdef bint pinned = host and device.device_type != kDLCPU
    cdef bint unified = device.device_type == kDLCUDAManaged
    if (pinned or unified) and not supports_label(target, pinned):
        out.steps |= TO_DEVICE_LABEL
        return 0
    if host and not target.supports & HOST:
        own = DLDevice(target.upload_type or kDLCUDA, ANY_DEVICE_ID)
        raise refusal(DeviceError, target.name, "device", device_name(device[0]),
                      f"is the host's memory, which {target.name} does not have", f'pass device="{device_name(own)}"')
    # A build of torch for the CPU would make a tensor of device memory, but could do nothing with it.
    if not host and (not target.supports & OTHER_DEVICES or (
            has_streams(device.device_type) and target.upload != NULL and not target.upload_type)):
        raise refusal(DeviceError, target.name, "device", device_name(device[0]),
                      f"is not the host's memory, which is all that {target.name} has", 'pass device="cpu"')
    if not host and 0 <= target.gpus <= device.device_id:
        raise refusal(DeviceError, target.name, "device", device_name(device[0]),
                      f"is none of the {target.gpus} that {target.name} sees", 'pass device="cpu"')
    return 0


cdef int decide_elements(const Managed* managed, Target target, Decision* out) except -1:
    """Decide what place must do to the elements: byte order, lazy bits, and the form of elements below a byte."""
    cdef DLDataType dtype = managed.abi.dl_tensor.dtype
    cdef int row = managed.row
    if managed.marks & SWAPPED and not target.supports & SWAPPED_BYTES:
        want(out, COPY, BYTE_ORDER)
    if managed.marks & (NEGATED | CONJUGATED):
        want(out, COPY, LAZY_BITS)
    if target.copied_rows >> row & 1:
        want(out, COPY_BY_TARGET, ELEMENT_FORM)
    elif target.takes is not None and not target.takes(row_name(row), managed_shape(managed)):
        want(out, COPY_BY_TARGET, OWN_FORM)
    if target.rows >> row & 1 and not get_row(row).subbyte:
        return 0
    if dtype.lanes == 2:
        return decide_pairs(managed, target, out)
    if not get_row(row).subbyte:
        raise lacks_dtype(managed, target)
    dtype.lanes = 2
    pairs = find_dlpack(dtype)
    packed = managed_packed(managed)
    if target.rows >> row & 1 and target.supports & (PACKED if packed else PADDED):
        return 0
    if target.rows >> row & 1 and target.supports & (PADDED if packed else PACKED):
        want(out, UNPACK if packed else pack_steps(managed), ELEMENT_FORM)
    elif pairs >= 0 and target.rows >> pairs & 1:
        decide_to_pairs(managed, target, out, packed)
    else:
        raise lacks_dtype(managed, target)
    return 0


cdef int decide_to_pairs(const Managed* managed, Target target, Decision* out, bint packed) except -1:
    cdef int32_t ndim = managed.abi.dl_tensor.ndim
    if ndim == 0 or managed.abi.dl_tensor.shape[ndim - 1] % 2:
        raise refusal(ConversionError, target.name, "shape", managed_shape(managed),
                      f"cannot be paired along its last axis, and {target.name} keeps "
                      f"{dtype_name(managed.abi.dl_tensor.dtype)} in pairs", "pad the last axis to an even extent")
    out.steps |= PACKED_TO_PAIRS
    if not packed:
        want(out, pack_steps(managed), ELEMENT_FORM)
    return 0


cdef int decide_pairs(const Managed* managed, Target target, Decision* out) except -1:
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef DLDataType dtype = tensor.dtype
    dtype.lanes = 1
    single = find_dlpack(dtype)
    if single < 0 or target.rows >> single & 1 == 0 or not target.supports & (PACKED | PADDED) or tensor.ndim == 0:
        raise lacks_dtype(managed, target)
    if managed.marks & STRIDED:
        want(out, COPY, HOLES)
    out.steps |= PAIRS_TO_PACKED
    if not target.supports & PACKED:
        want(out, UNPACK, ELEMENT_FORM)
    return 0


cdef object lacks_dtype(const Managed* managed, Target target):
    from dlbridge._core.narrowing import NEAREST

    near = NEAREST.get(dtype_name(managed.abi.dl_tensor.dtype))
    hint = f"convert it to a type that {target.name} has"
    if near is not None and target.rows >> find_name(near) & 1:
        hint = "pass narrow=True"
    elif managed.protocol != PROTOCOL_EXCHANGE_API and is_host(managed.abi.dl_tensor.device.device_type):
        hint += ', or pass its bits, numpy.ascontiguousarray(x).view("uint8")'
    return refusal(ConversionError, target.name, "dtype", dtype_name(managed.abi.dl_tensor.dtype),
                   f"is a type that {target.name} does not have", hint)


cdef int decide_layout(const Managed* managed, Target target, Decision* out) except -1:
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int32_t supports = target.supports
    if out.steps & COPY or managed_packed(managed):
        return 0
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
    return 0


cdef bint is_misaligned(const Managed* managed, Target target) noexcept:
    return not managed_packed(managed) and managed_count(managed) and (
        <size_t> managed_data(managed) & low_bits_of(managed, target) != 0)


cdef uint8_t low_bits_of(const Managed* managed, Target target) noexcept:
    """The bits of the address that must be 0, where the memory is. Managed memory is mostly read by the host."""
    cdef int32_t device_type = managed.abi.dl_tensor.device.device_type
    cdef bint host = is_host(device_type) or device_type == kDLCUDAManaged
    return target.low_bits[managed.row] if host else target.device_low_bits[managed.row]


cdef int decide_access(
    const Managed* managed, Target target, const Request* request, Decision* out,
) except -1:
    """Decide about memory that is read-only on one side and writable on the other, unless the caller shares it."""
    cdef bint writable = not managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY
    cdef Reason reason = WRITABLE_MEMORY if writable else READ_ONLY_MEMORY
    if managed_count(managed) == 0:
        return 0
    host = is_host(managed.abi.dl_tensor.device.device_type)
    if writable and managed_alone(managed) and (host or not target.copies_own):
        out.steps |= SEAL
        return 0
    if request.readonly == READONLY_ERROR:
        raise refusal(ConversionError, target.name, "readonly", '"error"', ACCESS[reason].format(target=target.name),
                      'pass readonly="copy", or "share" and do not write')
    want(out, separate_steps(managed) if host else copy_step(managed, target, out), reason)
    return 0
