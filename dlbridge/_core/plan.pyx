"""The plan: what the library and the driver are asked, what is decided, and how that is said."""

from libc.stdint cimport int32_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, DLTensor, kDLCPU, kDLCUDA, kDLCUDAManaged,
)
from dlbridge._core.block cimport (
    PROTOCOL_ARRAY_INTERFACE, PROTOCOL_DLPACK, PROTOCOL_DLPACK_LEGACY, PROTOCOL_EXCHANGE_API, PROTOCOL_NUMPY, Managed,
    managed_data, managed_release, managed_shape, managed_strides,
)
from dlbridge._core.copies cimport note_copy
from dlbridge._core.decision cimport (
    BY_POLICY, FETCH, HOW, IN_C_ORDER, LABEL_AS_HOST, NARROW, NO_COPY, NO_KERNEL, REARRANGE, STAGED, UPLOAD, Decision,
    Findings, Reason, Step, decide, is_bool, is_for_host, is_immutable, is_misaligned, is_spread, low_bits_of,
    needs_kernel,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, device_name, has_streams, is_gpu, is_host
from dlbridge._core.dtypes cimport NO_ROW, dtype_name, get_row, nearest_row, row_name
from dlbridge._core.late cimport c_function, load_module
from dlbridge._core.layout cimport LENGTH_1, STRIDED
from dlbridge._core.place cimport COPY_THERE, FETCH_THERE, dense_like, is_stageable
from dlbridge._core.request cimport (
    COPY_NEVER, COPY_UNLESS_CONSTANT, READONLY_SHARE, Request, is_unordered, request_of_copy,
)
from dlbridge._core.sources.offer cimport facts_of, hints
from dlbridge._core.target cimport OTHER_DEVICES, Target, uploads_to

from dlbridge._core.copies import COPIED, GATHERED, GATHERED_HINT, GIVEN, OWN, OWN_HINT
from dlbridge.errors import ConversionError, CopyRequiredError, DeviceError, refusal


# Filled in by conversion.pyx, since memory is converted to the library whose kernel is called.
cdef Kernels kernels

# find_writer() of constant.pyx, which is loaded with the first read-only memory that may have to be copied.
ctypedef str (*FindWriter)(const Managed* managed)
cdef void* find_writer = NULL

# is_made_anew() of sources/array_interface.pyx, which is loaded with the first array interface.
ctypedef bint (*IsMadeAnew)(const Managed* first, object obj) except -1
cdef void* is_made_anew = NULL

cdef str ALIGNED = 'pass dlbridge.convert(x, "numpy", copy=True), which is aligned'
# How a hint begins where nothing that the caller could change makes the copy unnecessary.
cdef str NOTHING = "nothing to do: "
cdef str FLAGGED = "pass max_version=(1, 0)"        # only a legacy capsule lacks the flag for padded elements
cdef str SHARE = 'pass readonly="share" and do not write'
# For each reason: the field, what is so of the memory, what the target makes of that, and the hint; None where
# that depends on who has the memory.
cdef dict REASONS = {
    Reason.COPY_ASKED: ("copy", "was asked for", "", "pass copy=None"),
    Reason.BYTE_ORDER: ("byte order", "is not this machine's", ", and {target} has no other", None),
    Reason.LAZY_BITS: (
        "lazy bits", "negate or conjugate, which memory alone does not", "", "pass x.resolve_conj().resolve_neg()"),
    Reason.ODD_STRIDE: (
        "strides", "{strides} in bytes are no multiples of the item size", ", and {target} counts in elements", None),
    Reason.NEGATIVE_STRIDE: ("strides", "{strides} go backwards", ", which {target} does not support", None),
    Reason.ZERO_STRIDE: ("strides", "{strides} repeat elements", ", which {target} does not support", None),
    Reason.HOLES: ("strides", "{strides} of shape {shape} leave holes", ", which {target} does not support", None),
    Reason.AXIS_ORDER: ("strides", "{strides} of shape {shape} are not in C order", ", which {target} needs", None),
    Reason.MISALIGNED: (
        "data", "at {data:#x} is not aligned to {alignment} bytes", ", which {target} needs to share", ALIGNED),
    Reason.ELEMENT_FORM: (
        "dtype", "{dtype} has its bits in another place than {target} has them", "", NOTHING + "bits must move"),
    Reason.WIDE_TYPE: (
        "dtype", "{dtype} becomes {near}, the nearest type that {target} has", "", NOTHING + "narrow=True asks for it"),
    Reason.OWN_FORM: ("memory", "is copied by {target}, which {takes}", "", COPIED),
    Reason.NO_SHARING: ("memory", "of others is nothing that {target} can use", "", COPIED),
    Reason.OTHER_DEVICE: (
        "device", "is another one than where the memory is", "", "pass device=None, or an array that is there"),
    Reason.READ_ONLY_MEMORY: (
        "readonly", "memory would become writable, since {target} cannot be told otherwise", "", SHARE),
    Reason.WRITABLE_MEMORY: ("memory", "is writable, and the arrays of {target} must not change", "", SHARE),
    Reason.READ_ONLY_VIEW: (
        "memory", "is read-only, but somebody can still write to it ({writer}), and the arrays of {target} must not "
        "change", "", SHARE),
    Reason.UNKEPT_COPY: (
        "memory", "is a copy that nobody keeps until {target}, which does not say when, has read it", "", COPIED),
    Reason.ANOTHER_HOST: (
        "device", "is not the first of the host's, on which {target} shares memory", "", 'pass device="cpu:0"'),
    Reason.GIVEN_COPY: ("memory", GIVEN, "", COPIED),
    Reason.SPREAD: (
        "strides", "{strides} of shape {shape} spread few bytes over many", ", which would all be fetched", None),
    Reason.GATHERED_CHUNKS: ("chunks", GATHERED, "", GATHERED_HINT),
    Reason.ORDER_ASKED: (
        "strides", "{strides} of shape {shape} are not in C order", ', which order="C" asks for', "pass order=None"),
}

# For each reason of a refusal that no policy of the caller's would change: the error, its field and value, what is
# wrong, and the hint; None where that depends on the type.
cdef dict REFUSALS = {
    Reason.OTHER_AXES: (
        ConversionError, "shape", "{shape}", "has {ndim} axes, and {target} takes {fewest} to {most}", "reshape it"),
    Reason.LACKED_TYPE: (ConversionError, "dtype", "{dtype}", "is a type that {target} does not have", None),
    Reason.ODD_EXTENT: (
        ConversionError, "shape", "{shape}",
        "cannot be paired along its last axis, and {target} keeps {dtype} in pairs",
        "pad the last axis to an even extent"),
    Reason.NO_HOST: (
        DeviceError, "device", "cpu", "is the host, whose memory {target} does not have", 'convert it to "numpy"'),
    Reason.NO_SUCH_HOST: (
        DeviceError, "device", "cpu:{host}", "is none of the {hosts} of the host that {target} sees",
        'pass device="cpu"'),
    Reason.HOST_MEMORY: (
        DeviceError, "device", "{device}", "is the host's memory, which {target} does not have", 'pass device="{own}"'),
    Reason.DEVICE_MEMORY: (
        DeviceError, "device", "{device}", "is not the host's memory, which is all that {target} has", "{fetched}"),
    Reason.NOT_FETCHED: (
        DeviceError, "device", "{device}", "is memory that dlbridge cannot copy to the host", FETCH_THERE),
    Reason.NO_SUCH_GPU: (
        DeviceError, "device", "{device}", "is none of the {gpus} that {target} sees", 'pass device="cpu"'),
}

# Each step with who does it, in their order.
cdef tuple STEPS = (
    (Step.BY_PRODUCER, "copy (its library)"),
    (Step.REARRANGE, "compact copy ({kernel})"),
    (Step.LABEL_AS_DEVICE, "label as the device's (driver)"),
    (Step.ORDER, "order of the streams (driver)"),
    (Step.LABEL_AS_HOST, "label as the host's (dlbridge)"),
    (Step.FETCH, "fetch (driver)"),
    (Step.COPY, "copy (dlbridge)"),
    (Step.COPY_SPAN, "copy of the touched bytes ({copier})"),
    (Step.LABEL_COPY_AS_HOST, "label as the host's (dlbridge)"),
    (Step.ORDER_COPY, "order of the copy (driver)"),
    (Step.PAIRS_TO_PACKED, "pairs seen one by one (dlbridge)"),
    (Step.UNPACK, "a byte for each element (dlbridge)"),
    (Step.PACK, "elements side by side (dlbridge)"),
    (Step.PACKED_TO_PAIRS, "elements seen in pairs (dlbridge)"),
    (Step.RESET_LENGTH_1, "plain strides (dlbridge)"),
    (Step.SEAL, "read-only from now on (dlbridge)"),
    (Step.UPLOAD, "upload ({target})"),
    (Step.COPY_BY_TARGET, "copy ({target})"),
    (Step.COPY_IN_TARGET, "copy ({target})"),
)

# What another array of the same elements, made by the hint, would not have.
cdef tuple OF_ELEMENTS = (
    Reason.BYTE_ORDER, Reason.ODD_STRIDE, Reason.NEGATIVE_STRIDE, Reason.ZERO_STRIDE, Reason.HOLES, Reason.AXIS_ORDER,
)

# The text of readonly="error", for each reason that is about who may write.
cdef dict ACCESS = {
    Reason.READ_ONLY_MEMORY: "the memory is read-only, and {target} cannot be told",
    Reason.WRITABLE_MEMORY: "the memory is writable, and the arrays of {target} must not change",
    Reason.READ_ONLY_VIEW: "the memory is read-only, but somebody can still write to it ({writer}), and the arrays of "
                           "{target} must not change",
}


# ---- what is asked, and what is said ---------------------------------------------------------------------------------

cdef int make_plan(
    const Managed* managed, Target target, const Request* request, object src, Decision* out,
) except -1:
    """Decide what is done with the memory, or raise why nothing is."""
    cdef Findings findings
    cdef int row
    gather(managed, target, request, src, &findings)
    decide(managed, target, request, &findings, out)
    if out.refused:
        raise refusal_of(managed, target, request, out, src)
    if out.steps & UPLOAD and not out.steps & ~(UPLOAD | STAGED | HOW) and not request.peek:
        row = nearest_row(managed.row) if out.steps & NARROW else managed.row
        # A library may have elements below a byte in a form of its own.
        out.staged = not get_row(managed.row).subbyte and is_stageable(<Managed*> managed, row, &out.upload)


cdef int gather(
    const Managed* managed, Target target, const Request* request, object src, Findings* out,
) except -1:
    """Ask the library and the driver what decide() has to know about this memory. What the library refuses is raised.
    """
    if request.has_device and request.device.device_id > 0 and has_streams(request.device.device_type):
        device_operations().check_device(&request.device)
    if request.peek and request.has_device and uploads_to(target, request.device.device_type) and has_streams(
            request.device.device_type):
        load_module("dlbridge._core.devices.cuda").require_driver(request.device.device_type)
    out.row = managed.row
    if request.narrow or target.asked_rows >> managed.row & 1:
        out.row = row_for(managed, target, request)
    out.takes = target.takes is None or target.takes(row_name(out.row), managed_shape(managed))
    out.readable = managed.abi.dl_tensor.device.device_type == kDLCUDAManaged and is_for_host(
        managed, target, request) and device_operations().is_readable(<Managed*> managed)
    out.host = max(0, request.device.device_id) if request.has_device else 0
    if target.hosts > 1 and not request.has_device:
        out.host = target.facts.default_host.value(target.namespace)
    out.kernel = managed.abi.dl_tensor.device.device_type != kDLCPU and request.copy != COPY_NEVER and (
        may_be_rearranged(managed, target, request, out.row) and kernels.find(managed, src) is not None)
    out.copied = request.peek and is_given_copy(managed, src)
    out.constant = managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY and (
        request.copy == COPY_UNLESS_CONSTANT or is_immutable(target) and request.readonly != READONLY_SHARE) and (
        writer_of(managed) is None)


cdef int row_for(const Managed* managed, Target target, const Request* request) except -2:
    """The row of the elements that the target gets: that of the memory, or the nearest one where ``narrow`` allows it.
    """
    cdef Managed narrower = managed[0]
    cdef int near = nearest_row(managed.row) if request.narrow else NO_ROW
    refused = target.why_not(managed)
    if near != NO_ROW and target.rows >> near & 1 and (refused is not None or not target.rows >> managed.row & 1):
        narrower.row = near
        refused = target.why_not(&narrower)
    if refused is not None:
        raise refused
    return narrower.row


cdef str writer_of(const Managed* managed):
    return (<FindWriter> c_function(&find_writer, "dlbridge._core.constant", "find_writer"))(managed)


cdef bint is_given_copy(const Managed* managed, object src) except -1:
    """Whether the producer gave a copy, which only explain() wants to know.

    What a producer of DLPack has copied is shared from there on, and needs no other copy.
    """
    if managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED and managed.protocol != PROTOCOL_DLPACK:
        return True
    if managed.protocol != PROTOCOL_ARRAY_INTERFACE or src is None:
        return False
    return (<IsMadeAnew> c_function(
        &is_made_anew, "dlbridge._core.sources.array_interface", "is_made_anew"))(managed, src)


cdef dict values_for(const Managed* managed, Target target, const Decision* decision):
    """The values for the names in braces in the texts above."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    near = nearest_row(managed.row)
    return {
        "target": target.called, "takes": target.facts.takes.text if target.takes is not None else "",
        "shape": managed_shape(managed), "ndim": tensor.ndim, "strides": managed_strides(managed),
        "data": <size_t> managed_data(managed), "alignment": low_bits_of(managed, target) + 1,
        "dtype": dtype_name(tensor.dtype), "near": row_name(near) if near != NO_ROW else "",
        "fewest": target.fewest_axes, "most": target.most_axes, "gpus": target.gpus, "hosts": target.hosts,
        "host": decision.upload.device_id, "device": device_name(tensor.device),
        "own": own_device(target),
        "writer": writer_of(managed) if decision.reason == Reason.READ_ONLY_VIEW else "",
        "fetched": 'pass device="cpu"' if has_streams(tensor.device.device_type) else FETCH_THERE,
    }


cdef str own_device(Target target):
    """The device of a library, as in device=."""
    cdef int32_t device_type = kDLCUDA
    while target.upload_types and not uploads_to(target, device_type):
        device_type += 1
    return device_name(DLDevice(device_type, ANY_DEVICE_ID))


cdef tuple fact_of(const Managed* managed, Target target, const Decision* decision):
    field, fact, _, _ = REASONS[decision.reason]
    return field, fact.format(**values_for(managed, target, decision)), way_out(managed, target, decision, None)


cdef str lack_of(const Managed* managed, Target target, const Decision* decision):
    """Why a field makes a copy necessary."""
    _, fact, lack, _ = REASONS[decision.reason]
    return (fact + lack).format(**values_for(managed, target, decision))


cdef tuple step_texts(
    const Managed* managed, Target target, const Request* request, const Decision* decision, object src,
):
    """What is done with the memory, in order, each with who does it."""
    cdef Request asked
    cdef Decision of_compact
    cdef Managed* compact
    cdef int32_t shown
    names = {"target": target.called, "copier": "driver", "kernel": ""}
    if decision.steps & LABEL_AS_HOST or is_host(managed.abi.dl_tensor.device.device_type):
        names["copier"] = "dlbridge"
    if decision.steps & REARRANGE:
        names["kernel"] = kernels.find(managed, src)[0].__module__.rpartition(".")[2]
    shown = decision.steps & ~(<int32_t> Step.ORDER if is_unordered(request) else 0)      # then nobody waits
    texts = tuple([text.format(**names) for step, text in STEPS if shown & <int32_t> step])
    if not decision.steps & REARRANGE:
        return texts
    # Further steps are decided once the copy is there. Here they are decided for a block that is like the copy.
    asked = request_of_copy(request)
    asked.peek = False
    compact = dense_like(managed, nearest_row(managed.row) if decision.steps & NARROW else managed.row, IN_C_ORDER)
    compact.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED
    try:
        make_plan(compact, target, &asked, None, &of_compact)
        return texts + step_texts(compact, target, &asked, &of_compact, None)
    finally:
        managed_release(compact)


cdef int note_decision(
    object src, const Managed* managed, Target target, const Request* request, const Decision* decision,
) except -1:
    cdef bint own = request.copy == COPY_UNLESS_CONSTANT and decision.reason == Reason.COPY_ASKED
    there = device_name(managed.abi.dl_tensor.device)
    if decision.steps & UPLOAD:
        there = device_name(decision.upload)
    elif decision.steps & FETCH:
        there = "cpu"
    reason = OWN if own else reason_text(managed, target, decision)
    hint = OWN_HINT if own else reason_hint(managed, target, decision, src)
    return note_copy(src, managed, target.called, reason, hint, there, <int> decision.reason)


cdef str reason_text(const Managed* managed, Target target, const Decision* decision):
    """Why memory is copied; empty where it is shared."""
    if decision.reason not in REASONS:
        return ""
    return f"{REASONS[decision.reason][0]} {lack_of(managed, target, decision)}"


cdef str reason_hint(const Managed* managed, Target target, const Decision* decision, object src):
    """What to do about a reason, and whether that is a copy, too."""
    hint = way_out(managed, target, decision, src)
    copies = decision.reason in OF_ELEMENTS or decision.reason == Reason.MISALIGNED
    return f"{hint}, which copies once" if copies and hint.startswith("pass") else hint


cdef str way_out(const Managed* managed, Target target, const Decision* decision, object src):
    """What to do about a reason. If the address would be the next reason, the hint solves both."""
    if decision.reason == Reason.SHARED_READ_ONLY:
        system = load_module("dlbridge._core.system_memory")
        return system.WRITE_ENDS if system.is_write_protected(<size_t> managed_data(managed)) else (
            f"do not write to it: {target.name} cannot be told that it is read-only")
    if decision.reason == Reason.SHARED_UNTIL_READ:
        return f"keep the source, and do not write to it, until {target.name} has done its work"
    if (decision.reason in ACCESS or decision.reason == Reason.MISALIGNED and is_immutable(target)) and (
            is_misaligned(managed, target) and is_host(managed.abi.dl_tensor.device.device_type)):
        return f'{ALIGNED}, with readonly="share"'
    hint = REASONS[decision.reason][3]
    if target.export_hint is not None and decision.reason == Reason.COPY_ASKED:
        return NOTHING + "its consumer asks for it"
    if target.export_hint is not None and decision.reason in ACCESS:
        return target.export_hint
    if target.export_hint is not None and decision.reason == Reason.ELEMENT_FORM:
        return FLAGGED
    if hint is not None:
        return hint
    return order_hint(managed) if decision.reason == Reason.BYTE_ORDER else contiguous_hint(managed, src)


cdef object refusal_of(
    const Managed* managed, Target target, const Request* request, const Decision* decision, object src,
):
    """The error of a decision that refuses."""
    cdef DLDevice device = managed.abi.dl_tensor.device
    if decision.refused == NO_COPY:
        return copy_required(managed, target, request, decision, src)
    if decision.refused == NO_KERNEL:
        return refusal(DeviceError, target.name, REASONS[decision.reason][0], lack_of(managed, target, decision),
                       f"needs a copy, which cannot be made on {device_name(device)}",
                       kernel_hint(managed, target, decision, src))
    if decision.refused == BY_POLICY:
        return refusal(ConversionError, target.name, "readonly", '"error"',
                       ACCESS[decision.reason].format(**values_for(managed, target, decision)),
                       target.export_hint or 'pass readonly="copy", or "share" and do not write')
    if decision.reason == Reason.NOT_MOVED:
        return not_moved(managed, target, &request.device)
    error, field, value, wrong, hint = REFUSALS[decision.reason]
    values = values_for(managed, target, decision)
    hint = lacked_hint(managed, target, src) if hint is None else hint.format(**values)
    return refusal(error, target.name, field, value.format(**values), wrong.format(**values), hint)


cdef object copy_required(
    const Managed* managed, Target target, const Request* request, const Decision* decision, object src,
):
    hint = way_out(managed, target, decision, src)
    if needs_kernel(managed, decision):
        hint = COPY_THERE
    else:
        in_vain = (
            hint.startswith(NOTHING) or target.export_hint is not None and decision.reason == Reason.OTHER_DEVICE
            # An array that is made anew can be written to, and would be copied for that.
            or is_immutable(target) and request.readonly != READONLY_SHARE and decision.reason in OF_ELEMENTS)
        hint = "pass copy=None" if in_vain else f"{hint}, or pass copy=None"
    return refusal(CopyRequiredError, target.name, REASONS[decision.reason][0], lack_of(managed, target, decision),
                   "needs a copy, and copy=False forbids it", hint)


cdef object not_moved(const Managed* managed, Target target, const DLDevice* wanted):
    there = device_name(wanted[0])
    wrong, hint = f"is not {there}, and dlbridge does not move it there", "move it with the library that made it"
    if target.export_hint is not None:
        return refusal(DeviceError, target.name, "dl_device", there, f"is not where the memory is, "
                       f"{device_name(managed.abi.dl_tensor.device)}", "convert() it there first")
    kind, colon, index = there.partition(":")
    move = target.facts.moves.get(kind)
    if move is not None:
        hint = f'call dlbridge.convert(x, "{target.name}"){move.format(colon + index)}'
    elif not target.supports & OTHER_DEVICES:
        wrong, hint = f"is not {there}, and {target.name} has memory of the host alone", "leave out device="
    if has_streams(wanted.device_type) and is_host(managed.abi.dl_tensor.device.device_type):
        try:
            load_module("dlbridge._core.devices.cuda").require_driver(wanted.device_type)
        except DeviceError:
            name = "CUDA" if wanted.device_type == kDLCUDA else "ROCm"
            wrong, hint = f"is not {there}, and no {name} driver was found", "leave out device="
    return refusal(DeviceError, target.name, "device", device_name(managed.abi.dl_tensor.device), wrong, hint)


cdef str lacked_hint(const Managed* managed, Target target, object src):
    near = nearest_row(managed.row)
    if near != NO_ROW and target.rows >> near & 1:
        return "pass narrow=True"
    hint = f"convert it to a type that {target.name} has"
    bits = own_hint(src, "bits")
    if bits is not None:
        return f"{hint}, or {bits}"
    if is_host(managed.abi.dl_tensor.device.device_type):
        return f'{hint}, or pass its bits, {compact_array(managed)}.view("uint8")'
    return hint


cdef str kernel_hint(const Managed* managed, Target target, const Decision* decision, object src):
    """What to do about memory for which no library with kernels was found. No kernel swaps bytes or packs elements."""
    if decision.reason in ACCESS or target.export_hint is not None and decision.reason == Reason.ELEMENT_FORM:
        return reason_hint(managed, target, decision, src)
    if decision.reason == Reason.WIDE_TYPE:
        return "narrow it with the library that made it"
    of_strides = decision.reason in (
        Reason.NEGATIVE_STRIDE, Reason.ZERO_STRIDE, Reason.HOLES, Reason.AXIS_ORDER, Reason.SPREAD,
        Reason.ORDER_ASKED)
    return hints().NO_KERNEL if of_strides and has_streams(managed.abi.dl_tensor.device.device_type) else COPY_THERE


cdef str contiguous_hint(const Managed* managed, object src):
    of_host = is_host(managed.abi.dl_tensor.device.device_type)
    return own_hint(src, "contiguous") or (f"pass {compact_array(managed)}" if of_host else COPY_THERE)


cdef str compact_array(const Managed* managed):
    """The code that makes a compact ndarray. ascontiguousarray() does not read DLPack, so convert() comes before it."""
    return 'numpy.ascontiguousarray(dlbridge.convert(x, "numpy"))' if managed.protocol in (
        PROTOCOL_DLPACK, PROTOCOL_DLPACK_LEGACY, PROTOCOL_EXCHANGE_API) else "numpy.ascontiguousarray(x)"


cdef object own_hint(object src, str field):
    """What the file of an array's library says of a field, or None."""
    return None if src is None else facts_of(type(src)).own_hint(field)


cdef str order_hint(const Managed* managed):
    if managed.protocol == PROTOCOL_NUMPY:
        return 'pass x.astype(x.dtype.newbyteorder("="))'
    return 'pass numpy.array(x, numpy.asarray(x).dtype.newbyteorder("="))'


cdef bint may_be_rearranged(const Managed* managed, Target target, const Request* request, int row) noexcept:
    """Whether memory of a device has something that kernels may have to change for the target."""
    cdef int32_t device_type = managed.abi.dl_tensor.device.device_type
    return is_gpu(device_type) and (
        managed.marks & ~(target.supports | LENGTH_1) or is_bool(managed) or row != managed.row
        or ((request.c_order or request.copy == COPY_UNLESS_CONSTANT) and managed.marks & STRIDED)
        or (is_for_host(managed, target, request) and is_spread(managed)))
