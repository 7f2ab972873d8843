"""The steps of a decision, and the one loop that takes them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from dlbridge._core.abi cimport DLDevice, kDLCPU
from dlbridge._core.atomic cimport add
from dlbridge._core.block cimport Managed, managed_drop, managed_release, managed_seal
from dlbridge._core.copies cimport is_watched
from dlbridge._core.decision cimport (
    COPY, COPY_SPAN, FETCH, LABEL_AS_DEVICE, LABEL_AS_HOST, LABEL_COPY_AS_HOST, ORDER, ORDER_COPY, PACK,
    PACKED_TO_PAIRS, PAIRS_TO_PACKED, READ_ONLY_MEMORY, READ_ONLY_VIEW, REARRANGE, RESET_LENGTH_1, SEAL, STAGED, TAKEN,
    UNPACK, WRITABLE_MEMORY, Decision, fits_there, is_copy, item_stride,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, same_device
from dlbridge._core.layout cimport LENGTH_1, fill_length_1
from dlbridge._core.place cimport PASS_A_PART, copied, copies_made, fetched, repacked, with_lanes
from dlbridge._core.plan cimport SHARE, kernels, make_plan, note_decision
from dlbridge._core.request cimport Request, is_unordered, request_of_copy
from dlbridge._core.target cimport Target

from dlbridge.errors import DeviceError, refusal


cdef Managed* placed(Managed* managed, Target target, Request* request, object src, Decision* decision) except NULL:
    cdef Managed* copy = NULL
    if fits_there(managed, target, request):
        decision.steps, decision.staged = ORDER, False          # nobody waits where there is no consumer's stream
        return taken(managed, ORDER, target, request, decision)
    try:
        make_plan(managed, target, request, src, decision)
        if is_copy(decision):
            add(&copies_made, 1)
            if is_watched():
                note_decision(src, managed, target, request, decision)
        if decision.steps & REARRANGE:
            copy = kernels.rearranged(managed, src, decision.steps)
    except BaseException:
        managed_release(managed)
        raise
    if decision.steps & REARRANGE:
        managed_release(managed)
        request[0] = request_of_copy(request)
        return placed(copy, target, request, None, decision)
    return taken(managed, decision.steps & ~(<int32_t> STAGED if decision.staged else 0), target, request, decision)


cdef Managed* taken(
    Managed* managed, int32_t steps, Target target, const Request* request, const Decision* decision,
) except NULL:
    """Take the steps, the lowest bit first.

    This frame owns the block, and it alone releases one: a step borrows it, and gives it back or another in its place.
    """
    cdef Managed* made
    steps &= TAKEN
    try:
        while steps:
            made = take(steps & -steps, managed, target, request, decision)
            if made != managed:
                managed_drop(managed)
                managed = made
            steps &= steps - 1
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef Managed* take(
    int32_t step, Managed* managed, Target target, const Request* request, const Decision* decision,
) except NULL:
    if step == FETCH:
        return fetched(managed)
    if step == COPY or step == COPY_SPAN:
        return copied_for(managed, target, decision)
    if step == UNPACK:
        return repacked(managed, True)
    if step == PACK:
        return repacked(managed, False)
    if step == PAIRS_TO_PACKED:
        return with_lanes(managed, 1)
    if step == PACKED_TO_PAIRS:
        return with_lanes(managed, 2)
    if step == LABEL_AS_DEVICE:
        label_as_device(managed, target, request)
    elif step == ORDER:
        order(managed, request)
    elif step == ORDER_COPY:
        order_current(managed, request)
    elif step == LABEL_AS_HOST or step == LABEL_COPY_AS_HOST:
        label_as_host(managed, request)
    elif step == RESET_LENGTH_1:
        fill_length_1(managed.abi.dl_tensor.ndim, managed.abi.dl_tensor.shape, managed.abi.dl_tensor.strides,
                      item_stride(managed))
        managed.marks &= ~<uint8_t> LENGTH_1
    elif step == SEAL:
        managed_seal(managed)
    return managed


cdef Managed* copied_for(Managed* managed, Target target, const Decision* decision) except NULL:
    """A copy. An error for want of memory has the hint to share, where that is all that the copy is for."""
    try:
        return copied(managed, decision.steps, target.api)
    except MemoryError as error:
        if decision.reason not in (READ_ONLY_MEMORY, READ_ONLY_VIEW, WRITABLE_MEMORY):
            raise
        raise MemoryError(str(error).replace(PASS_A_PART, target.export_hint or SHARE)) from None


# ---- labels, and who waits for whom ----------------------------------------------------------------------------------

cdef int label_as_device(Managed* managed, Target target, const Request* request) except -1:
    """Label pinned or managed memory as its device's, if the caller asked for that device or for none."""
    device_operations().label_device(managed)
    if request.has_device and not same_device(&request.device, &managed.abi.dl_tensor.device):
        raise refusal(DeviceError, target.name, "device", device_name(managed.abi.dl_tensor.device),
                      f"is not {device_name(request.device)}", "move it with the library that made it")


cdef int label_as_host(Managed* managed, const Request* request) except -1:
    """Label pinned or managed memory as the CPU's, which may read it at once, so the host waits for the producer."""
    if has_streams(managed.abi.dl_tensor.device.device_type) and not is_unordered(request):
        device_operations().await_producer(managed)
    managed.abi.dl_tensor.device = DLDevice(kDLCPU, 0)


cdef int order(Managed* managed, const Request* request) except -1:
    if request.has_stream:
        keeper = <object> request.stream_object if request.stream_object != NULL else None
        return device_operations().order_consumer(managed, request.stream, keeper, False)
    # A library that dlbridge cannot ask for a current stream names its stream when it consumes the Tensor.
    return order_current(managed, request) if request.current_stream != NULL else 0


cdef int order_current(Managed* managed, const Request* request) except -1:
    """Let the library's current stream wait, also for a copy that dlbridge queued on a device."""
    cdef DLDevice device
    cdef int64_t stream
    device_operations().stream_device(managed, &device)
    keeper = request.current_stream(request.target, &device, &stream)
    return device_operations().order_consumer(managed, stream, keeper, False)
