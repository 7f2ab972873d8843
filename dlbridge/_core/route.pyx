"""The route: the sources and the target for a type and a ``to``, cached; and on which device an array is."""

cimport cython
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice, kDLCPU
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.cache cimport ROUTES, cached, count_registrations, put, steal
from dlbridge._core.decision cimport fits
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, parse_device, same_device
from dlbridge._core.late cimport load_module, pause_collector, resume_collector
from dlbridge._core.layout cimport MAX_NDIM
from dlbridge._core.request cimport NOTHING_ASKED, Request
from dlbridge._core.sources.offer cimport Offer, facts_of, library, refusal_by_facts, replicas_of
from dlbridge._core.sources.registry cimport acquire_by, has_offer, offers_for_type, unsupported
from dlbridge._core.targets.registry cimport find_target, key_of, loaded_target

from dlbridge.errors import UnsupportedError


@cython.auto_pickle(False)
cdef class Route:
    """The candidate sources and the target for one pair (type of src, to). The route keeps both of the pair alive."""


cdef Route find_route_to(object src, object to, Request* request):
    """Find a route. If ``to`` is an array, it stands for its type, and for its device unless one is asked for."""
    cdef object kind = type_of_example(to)
    return aim_at(to, kind, find_route(src, key_of(to) if kind is None else kind), request)


cdef Route aim_at(object to, object kind, Route route, Request* request):
    """As aim(). If ``to`` is an array, which has a kind, its device is noted too."""
    if kind is not None and kind is not memoryview:
        note_device(to, route, request)
    return aim(request, route)


cdef int note_device(object array, Route route, Request* request) except -1:
    if not request.has_device:
        find_device(array, route.target.hosts, &request.device)
        request.has_device = True


cdef object type_of_example(object to):
    """The type of ``to``, if that is an array; otherwise None.

    The array itself is not handed on, since a cached route would keep it alive.
    """
    kind = type(to)
    if kind is str or isinstance(to, type):
        return None
    return kind if kind is memoryview or hasattr(kind, "__dlpack_device__") or hasattr(
        kind, "__cuda_array_interface__") else None


cdef Route aim(Request* request, Route route):
    """Note in the request which target's current stream counts, and whether it numbers devices of the host."""
    request.target = route.request.target
    request.current_stream = route.request.current_stream
    if request.device.device_type == kDLCPU and not route.target.hosts:
        request.device.device_id = ANY_DEVICE_ID
    return route


cdef Route find_route(object src, object to):
    """The cached route, or a new one."""
    cdef PyObject* entry = cached(ROUTES, <PyObject*> src, <PyObject*> to)
    if entry != NULL:
        return <Route> steal(entry)
    pause_collector()
    try:
        return new_route(src, to)
    finally:
        resume_collector()


cdef Route new_route(object src, object to):
    """Make a route. The first one of a library imports what is known of the library."""
    cdef size_t before = count_registrations()
    cdef Route route = Route.__new__(Route)
    cdef Offer first
    route.kind = type(src)
    route.key = to
    try:
        route.target = find_target(to)
    except UnsupportedError:
        load_module("dlbridge._core.meant").check_order(src)
        raise
    route.target.load()
    route.offers = offers_for_type(route.kind)
    first = <Offer> route.offers[0]
    # A type that a user registered is what its source gives.
    if first.protocol != "function" or first.facts.records:
        route.forms = library().between(facts_of(route.kind), route.target.facts, to)
    if route.forms is not None:
        route.form_name, route.ways = route.forms.form_name, {}
        wanted = route.forms.wanted
        route.wants_form = wanted is not None and not route.forms.target.forms[wanted].masked.also_dense
    route.already = owns(route, src)
    route.request = NOTHING_ASKED
    route.request.target = <PyObject*> route.target
    route.request.current_stream = route.target.current_stream
    route.direct = route.target.share != NULL and first.describe != NULL and first.keep != NULL
    route.plain = not route.already and not route.direct and route.forms is None
    # A proxy, which poses as another class, says nothing about other objects of its type, so its route is not cached.
    if src.__class__ is route.kind and route.target.owns_by_type(route.kind):
        put(ROUTES, route, before)
    return route


cdef bint owns(Route route, object src) except -1:
    """Whether src is what is asked for. A type of several arrays is asked for itself, and not only its library."""
    if route.forms is None:
        return route.target.owns(src)
    if route.forms.wanted is not None:
        return isinstance(route.forms.kind, type) and isinstance(src, route.forms.kind)
    if not isinstance(route.key, type) or isinstance(src, route.key):
        return route.target.owns(src) or route.forms.source is route.forms.target
    return route.target.facts.mixes_forms and route.target.owns(src)


cdef Route delivery_to(object to, str otherwise, Request* request):
    cdef PyObject* entry = cached(ROUTES, <PyObject*> None, <PyObject*> to)
    cdef Route route
    if entry != NULL:
        return aim(request, <Route> steal(entry))
    kind = type_of_example(to)
    try:
        route = find_route(None, key_of(to) if kind is None else kind)
    except UnsupportedError:
        if isinstance(to, (str, type)) or not has_offer(offers_for_type(type(to)), to):
            raise
        return route_to(None, otherwise, request)
    return aim_at(to, kind, route, request)


cdef object share_directly(object src, Route route, const Request* request):
    cdef Managed memory
    cdef int64_t room[2 * MAX_NDIM]
    cdef Offer offer = <Offer> PyTuple_GET_ITEM(route.offers, 0)
    if not offer.describe(src, offer, &memory, room) or not fits(&memory, route.target, request):
        return None
    return route.target.share(&memory, offer.keep(src))


def target_name(to, imported=True):
    """The name of a target. Raises what convert() raises if it is none, or if its library is missing."""
    return target_facts(to, imported).name


def target_facts(to, imported=True):
    """What is known of a target's library."""
    kind = type_of_example(to)
    if not imported:
        pause_collector()
        try:
            return find_target(to if kind is None else kind).facts
        finally:
            resume_collector()
    if kind is None:
        return loaded_target(to).facts
    return find_route(to, kind).target.facts        # the route is cached, for the conversion that follows


# ---- on which device an array is -------------------------------------------------------------------------------------

# ``hosts`` is the number of devices that a library sees on the host.

cdef bint is_on(object array, int hosts, const DLDevice* wanted) except -1:
    """Whether an array says that it is on one device. An array that says nothing is on the host."""
    cdef DLDevice actual
    find_device(array, hosts, &actual)
    return same_device(wanted, &actual) and not replicas_of(array, <Offer> offers_for_type(type(array))[0])


cdef int find_device(object array, int hosts, DLDevice* out) except -1:
    """Find the device of an array.

    It is the one of ``__dlpack_device__``; without that, the one of ``__cuda_array_interface__``, which is all that
    Numba's arrays have; otherwise the host. DLPack has one host, of which some libraries number several devices.
    """
    cdef Offer offer = <Offer> offers_for_type(type(array))[0]
    if offer.find_device != NULL and offer.find_device(array, offer, out):
        return 0
    try:
        device_by_protocol(array, out)
        if hosts > 1 and out.device_type == kDLCPU and offer.facts.host_number is not None:
            out.device_id = offer.facts.host_number(array)
    except Exception as error:
        replicas = replicas_of(array, offer)
        if replicas:
            return find_device(replicas[0], hosts, out)
        if offer.facts.has_mask is not None and offer.facts.why_unasked():
            return find_device(offer.facts.library_of_masks().forms["masked"].part_on_device(array), hosts, out)
        refused = (unsupported(array, offer.facts) if offer.facts.why_unasked() else
                   refusal_by_facts(array, offer.facts, "convert"))
        if refused is None:
            raise
        raise refused from error
    return 0


cdef int device_by_protocol(object array, DLDevice* out) except -1:
    """Find the device that an array's protocols name."""
    cdef Request request = NOTHING_ASKED
    cdef Managed* managed
    if hasattr(type(array), "__dlpack_device__"):
        return parse_device(tuple(array.__dlpack_device__()), out)
    out[0] = DLDevice(kDLCPU, 0)
    if hasattr(type(array), "__cuda_array_interface__"):
        request.detach = request.peek = True
        managed = acquire_by(offers_for_type(type(array)), array, &request)
        out[0] = managed.abi.dl_tensor.device
        managed_release(managed)
    return 0


cdef bint is_on_gpu(object array) except -1:
    """Whether an array's memory is on a device with streams.

    torch's tensor type has the interface for tensors of the CPU too, and for those without memory.
    """
    return hasattr(type(array), "__cuda_array_interface__") and getattr(array, "is_cuda", True)
