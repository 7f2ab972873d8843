"""Acquire, place, deliver: what every conversion is."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice
from dlbridge._core.block cimport Managed, managed_nbytes, managed_own_storage, managed_release
from dlbridge._core.decision cimport COPY_IN_TARGET, NARROW, STAGED, UPLOAD, Decision, is_immutable
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams
from dlbridge._core.dtypes cimport get_row, nearest_row, row_name
from dlbridge._core.facts cimport REARRANGED
from dlbridge._core.handover cimport hand_over_itself, hand_over_library_copy, hand_over_upload, settle
from dlbridge._core.layout cimport STRIDED
from dlbridge._core.location cimport is_on
from dlbridge._core.place cimport sent_to_pool, staged_in_pool
from dlbridge._core.plan cimport kernels, writer_of
from dlbridge._core.request cimport COPY_ALWAYS, COPY_UNLESS_CONSTANT, NOTHING_ASKED, READONLY_SHARE, Request
from dlbridge._core.route cimport Route, delivery_to, note_device, route_to, share_directly
from dlbridge._core.sources.offer cimport Offer, library
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.steps cimport placed, request_of_copy, taken
from dlbridge._core.target cimport Target, uploads_to
from dlbridge._core.targets.consumer cimport call_kernel, call_stage, call_upload
from dlbridge._core.targets.registry cimport loaded_target
from dlbridge.tensor cimport new_tensor

from dlbridge.errors import DeviceError

cdef enum:
    QUEUED_BYTES = 1 << 18      # the copy of more takes much longer than the wait for it


cdef bint is_already(object src, Route route, const Request* request) except -1:
    if request.copy == COPY_ALWAYS or request.copy == COPY_UNLESS_CONSTANT and not is_immutable(route.target):
        return False
    return is_there(src, route, request)


cdef bint is_there(object src, Route route, const Request* request) except -1:
    """Whether an array is on the device that is asked for, if one is."""
    return not request.has_device or is_on(src, route.target.hosts, &request.device)


cdef object convert_to(object src, object to, Request* request):
    """Convert src. What was asked for is in the request; what the target says is noted there."""
    cdef Route route = route_to(src, to, request)
    return convert_by_route(src, route, request)


cdef object convert_by_route(object src, Route route, const Request* request):
    """Convert src by a route.

    The caller holds a reference to the route, and with it to the request in it: a producer's code can register a source
    or a target, which clears the cache.
    """
    if route.already:
        return convert_own(src, route, request)
    if route.direct:
        array = share_directly(src, route, request)
        if array is not None:
            return array
    return convert_by_block(src, route, request)


cdef object convert_own(object src, Route route, const Request* request):
    """Return an array of the target's own as it is, or a copy of it, on the device that it is on if none is named."""
    cdef Request asked = request[0]
    if is_already(src, route, request):
        return hand_over_itself(src, request) if request.has_stream else src
    facts = route.target.facts
    if facts.clone is not None and request.copy == COPY_UNLESS_CONSTANT and is_there(src, route, request):
        return src if is_constant(src, route) else facts.clone.value(src, request.detach)
    if facts.duplicate is not None:
        return facts.duplicate.value(src)
    if route.target.hosts > 1:
        note_device(src, route, &asked)
    return deliver_out_of_line(acquire_by(route.offers, src, &asked), route.target, &asked, src)


cdef bint is_constant(object src, Route route) except -1:
    """Whether nobody can write to an array's memory; False of one whose memory its library does not show."""
    cdef Request looking = NOTHING_ASKED
    cdef Managed* managed
    looking.detach = looking.peek = True
    try:
        managed = acquire_by(route.offers, src, &looking)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return False
    try:
        return managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY and writer_of(managed) is None
    finally:
        managed_release(managed)


cdef object deliver_out_of_line(Managed* managed, Target target, const Request* request, object src):
    return deliver(managed, target, request, src)


cdef object place_and_deliver(Managed* managed, Target target, const Request* request, object src):
    cdef Decision decision
    cdef Request asked = request[0]
    cdef int64_t stream
    managed = placed(managed, target, &asked, src, &decision)
    if decision.staged:
        array = uploaded_at_once(managed, target, &decision, &asked)
        if array is not None:
            return array
        managed = taken(managed, decision.steps & STAGED, target, &asked, &decision)
    managed_own_storage(managed)
    if decision.steps & COPY_IN_TARGET:
        stream = settle(managed, decision.steps, &asked)
        return hand_over_library_copy(target.deliver(managed, target), target, stream)
    if decision.steps & UPLOAD:
        return uploaded(managed, target, &decision, &asked)
    return target.deliver(managed, target)


cdef object uploaded_at_once(Managed* managed, Target target, const Decision* decision, const Request* request):
    """Upload large memory as it lies, which is arranged and narrowed on the way; managed is stolen.

    None if it was not done, and then managed is not stolen.
    """
    cdef int row = nearest_row(managed.row) if decision.steps & NARROW else managed.row
    cdef Managed* block = NULL
    array = None
    try:
        if target.stage == NULL:
            block = staged_in_pool(managed, row, decision.steps, &decision.upload)
        elif row == managed.row:
            array = call_stage(managed, target, &decision.upload)
    except BaseException:
        managed_release(managed)
        raise
    if array is None and block == NULL:
        return None
    managed_release(managed)
    if block != NULL:
        return deliver_from_pool(block, target, request)
    return hand_over_upload(array, target, request)


cdef object uploaded(Managed* managed, Target target, const Decision* decision, const Request* request):
    """Upload memory that the target can take, by its library's own copy unless that is slow; managed is stolen."""
    cdef Request asked = request[0]
    cdef Managed* block
    if managed_nbytes(managed) > QUEUED_BYTES or managed.marks & STRIDED:
        asked.queued = NULL         # strided memory may be uploaded from a copy that nobody keeps
    if target.stage == NULL and is_large_upload(managed, &decision.upload):
        try:
            block = sent_to_pool(managed, &decision.upload, True)
        except DeviceError:
            pass                # the library may have memory of its own left, and need no pool
        except BaseException:
            managed_release(managed)
            raise
        else:
            managed_release(managed)
            return deliver_from_pool(block, target, request)
    return hand_over_upload(call_upload(managed, target, &decision.upload, &asked), target, request)


cdef bint is_large_upload(const Managed* managed, const DLDevice* device) except -1:
    return has_streams(device.device_type) and not get_row(managed.row).subbyte and device_operations().is_large(
        managed_nbytes(managed))


cdef object deliver_from_pool(Managed* block, Target target, const Request* request):
    """Deliver memory of the pool, which is complete, so that no stream has to wait for it."""
    cdef Request asked = request_of_copy(request)
    asked.has_stream = False
    return deliver_out_of_line(block, target, &asked, None)


# ---- copies by the kernels of a library ------------------------------------------------------------------------------

cdef Managed* rearranged(Managed* managed, object src, int32_t steps) except NULL:
    """A compact copy on the same device, in the nearest dtype if the steps say so; managed is stolen.

    A library makes it by its kernels on its current stream, and the copy is ready there.
    """
    cdef Request sharing = NOTHING_ASKED
    cdef DLDevice device = managed.abi.dl_tensor.device
    cdef int64_t nbytes = managed_nbytes(managed)
    cdef Managed* block
    sharing.readonly = READONLY_SHARE
    try:
        dtype = row_name(nearest_row(managed.row)) if steps & NARROW else None
        kernel, name = find_kernel(managed, src)
    except BaseException:
        managed_release(managed)
        raise
    if name is None:
        managed_release(managed)
    else:
        src = convert_to(new_tensor(managed, READONLY_SHARE), name, &sharing)
    array = call_kernel(kernel, src, dtype, &device, nbytes)
    block = acquire_by(offers_for_type(type(array)), array, &sharing)
    block.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED     # so that it is not copied again
    return block


cdef tuple find_kernel(const Managed* managed, object src):
    """The function that makes a compact copy of an array on its device, and its library: that of the array, or another.

    The other library is named; it is None for the array's own. None without any.
    """
    cdef Offer offer
    if src is not None:
        offer = <Offer> offers_for_type(type(src))[0]
        if offer.known & REARRANGED and offer.function is None:     # which gives another array, of which it is known
            return offer.values[<int> REARRANGED], None
    for name, kernel in library().rearrangers():
        if takes_as_it_is(managed, name):
            return kernel, name
    return None


cdef bint takes_as_it_is(const Managed* managed, str name):
    """Whether a library takes device memory without a change. One that does not work here takes none."""
    cdef Target target
    try:
        target = loaded_target(name)
    except Exception:
        return False
    return uploads_to(target, managed.abi.dl_tensor.device.device_type) and (
        managed.marks & ~target.supports == 0 and target.rows >> managed.row & 1)


kernels.find, kernels.rearranged = find_kernel, rearranged


# ---- blocks that are handed in ---------------------------------------------------------------------------------------

cdef object deliver_to(Managed* managed, object to, str otherwise):
    cdef Request request = NOTHING_ASKED
    cdef Route route
    try:
        route = delivery_to(to, otherwise, &request)
    except BaseException:
        managed_release(managed)
        raise
    return deliver_out_of_line(managed, route.target, &request, None)
