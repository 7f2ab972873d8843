"""Acquire, place, deliver: what every conversion is."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, STREAM_LEGACY_DEFAULT, STREAM_UNORDERED, DLDevice,
    kDLROCM,
)
from dlbridge._core.block cimport (
    BYTE_STRIDES, CONJUGATED, NEGATED, Managed, managed_nbytes, managed_own_storage, managed_release,
)
from dlbridge._core.copies cimport is_watched, note_clone
from dlbridge._core.decision cimport COPY_IN_TARGET, COPY_SPAN, NARROW, UPLOAD, Decision, is_immutable
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams
from dlbridge._core.dtypes cimport nearest_row, row_name
from dlbridge._core.layout cimport STRIDED
from dlbridge._core.place cimport shared_in_order
from dlbridge._core.plan cimport kernels, writer_of
from dlbridge._core.request cimport (
    COPY_ALWAYS, COPY_UNLESS_CONSTANT, NOTHING_ASKED, READONLY_SHARE, Request, is_unordered, request_of_copy,
)
from dlbridge._core.route cimport Route, delivery_to, is_on, is_on_gpu, note_device, route_to, share_directly
from dlbridge._core.sources.offer cimport Offer, library
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.steps cimport placed
from dlbridge._core.target cimport Target, uploads_to
from dlbridge._core.targets.importer cimport call_consumer, call_kernel
from dlbridge._core.targets.registry cimport loaded_target
from dlbridge._core.uploads cimport uploaded
from dlbridge.tensor cimport new_tensor


cdef bint is_already(object src, Route route, const Request* request) except -1:
    if request.copy == COPY_ALWAYS or request.copy == COPY_UNLESS_CONSTANT and not is_immutable(route.target):
        return False
    return is_as_asked(src, route, request)


cdef bint is_as_asked(object src, Route route, const Request* request) except -1:
    """Whether an array is on the device that is asked for, and in C order, if these are asked for."""
    if request.has_device and not is_on(src, route.target.hosts, &request.device):
        return False
    return not request.c_order or is_in_c_order(src, route)


cdef object convert_to(object src, object to, Request* request):
    """Convert src. The request has the keywords, and gets the target's current stream from route_to()."""
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
    """Return an array of the target's own type as it is, or a copy. A copy stays on its device if none is asked for."""
    cdef Request asked = request[0]
    if is_already(src, route, request):
        return own_in_order(src, request) if request.has_stream else src
    facts = route.target.facts
    if facts.clone is not None and request.copy == COPY_UNLESS_CONSTANT and is_as_asked(src, route, request):
        if is_constant(src, route):
            return src
        note_own(src, route, True)
        return facts.clone.value(src, request.detach)
    if facts.duplicate is not None:
        note_own(src, route, request.copy == COPY_UNLESS_CONSTANT)
        return facts.duplicate.value(src, request.detach)
    if route.target.hosts > 1:
        note_device(src, route, &asked)
    return deliver_out_of_line(acquire_by(route.offers, src, &asked), route.target, &asked, src)


cdef object own_in_order(object src, const Request* request):
    """An array of the target's own as it is, after the stream that was asked for is made to wait for it."""
    cdef DLDevice device
    cdef Managed* managed
    cdef Request asked = request[0]
    asked.detach = True         # the array itself is returned, so its gradient is not lost
    if request.stream != STREAM_UNORDERED and is_on_gpu(src):
        managed = acquire_by(offers_for_type(type(src)), src, &asked)
        try:
            if has_streams(managed.abi.dl_tensor.device.device_type):
                device_operations().stream_device(managed, &device)
                device_operations().order_streams(&device, device_operations().stream_of(managed), request.stream)
        finally:
            managed_release(managed)
    return src


cdef Managed* seen(object src, Route route) except? NULL:
    """The memory of an array, which is only looked at; NULL if its library does not show it."""
    cdef Request looking = NOTHING_ASKED
    looking.detach = looking.peek = True
    try:
        return acquire_by(route.offers, src, &looking)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return NULL


cdef int note_own(object src, Route route, bint own) except -1:
    """Tell who watches of a copy of the target's own array, which its library makes."""
    cdef Managed* managed
    if not is_watched():
        return 0
    managed = seen(src, route)
    try:
        return note_clone(src, managed, route.target.called, own)
    finally:
        if managed != NULL:
            managed_release(managed)


cdef bint is_constant(object src, Route route) except -1:
    """Whether nobody can write to an array's memory; False of one whose memory its library does not show."""
    cdef Managed* managed = seen(src, route)
    if managed == NULL:
        return False
    try:
        return managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY and writer_of(managed) is None
    finally:
        managed_release(managed)


cdef bint is_in_c_order(object src, Route route) except -1:
    """Whether an array's memory has its elements as they are, in C order.

    Immutable arrays that their library does not show have no strides; of others it is not known.
    """
    cdef Managed* managed = seen(src, route)
    if managed == NULL:
        return is_immutable(route.target)
    compact = not managed.marks & (BYTE_STRIDES | STRIDED | NEGATED | CONJUGATED)
    managed_release(managed)
    return compact


cdef object deliver_out_of_line(Managed* managed, Target target, const Request* request, object src):
    return deliver(managed, target, request, src)


cdef object place_and_deliver(Managed* managed, Target target, const Request* request, object src):
    cdef Decision decision
    cdef Request asked = request[0]
    cdef Managed* in_pool
    managed = placed(managed, target, &asked, src, &decision)
    if decision.steps & UPLOAD:
        array = uploaded(managed, target, &decision, &asked, &in_pool)
        if in_pool == NULL:
            return array
        asked = request_of_copy(&asked)
        asked.has_stream = False
        return deliver_out_of_line(in_pool, target, &asked, None)
    managed_own_storage(managed)
    if decision.steps & COPY_IN_TARGET:
        return copied_in_target(managed, target, &decision, &asked)
    return target.deliver(managed, target)


cdef object copied_in_target(Managed* managed, Target target, const Decision* decision, const Request* request):
    """The library's own copy of memory that it shares; managed is stolen.

    The producer's stream waits for this copy, so that the memory may be written afterwards, and its release needs no
    order. If the caller wants no order, there is none, unless the memory is itself a copy that dlbridge has queued.
    """
    cdef int64_t stream = STREAM_UNORDERED
    if not is_unordered(request) or decision.steps & COPY_SPAN:
        try:
            stream = device_operations().stream_of(managed)
            device_operations().settle(managed)
        except BaseException:
            managed_release(managed)
            raise
        # The array API standard numbers the default stream 0 for ROCm.
        if managed.abi.dl_tensor.device.device_type == kDLROCM and stream == STREAM_LEGACY_DEFAULT:
            stream = 0
    waiting = None if stream == STREAM_UNORDERED else stream
    array = target.deliver(managed, target)
    return call_consumer(lambda shared: target.facts.copier.value(shared, waiting), target, array)


# ---- copies by the kernels of a library ------------------------------------------------------------------------------

cdef Managed* rearranged(Managed* managed, object src, int32_t steps) except NULL:
    """A compact copy on the same device, in the nearest dtype if the steps say so.

    A library makes it by its kernels on its current stream, and the copy is ready there.
    """
    cdef Request sharing = NOTHING_ASKED
    cdef Managed* block
    sharing.readonly = READONLY_SHARE
    dtype = row_name(nearest_row(managed.row)) if steps & NARROW else None
    kernel, name = find_kernel(managed, src)
    if name is not None:
        src = convert_to(new_tensor(shared_in_order(managed), READONLY_SHARE), name, &sharing)
    array = call_kernel(kernel, src, dtype, &managed.abi.dl_tensor.device, managed_nbytes(managed))
    block = acquire_by(offers_for_type(type(array)), array, &sharing)
    block.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED     # so that it is not copied again
    return block


cdef tuple find_kernel(const Managed* managed, object src):
    """Find a function of a library that makes a compact copy on the device.

    The result is (function, None) if the array's own library has one, (function, name) of another library, or None.
    """
    cdef Offer offer
    if src is not None:
        offer = <Offer> offers_for_type(type(src))[0]
        # Of a function's offer, the facts are about what is given to it.
        if offer.function is None and offer.facts.rearranged is not None:
            return offer.facts.rearranged, None
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
