"""The bridge: acquire, place, deliver."""

from cpython.object cimport PyObject

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION
from dlbridge._core.block cimport (
    BYTE_STRIDES,
    Managed,
    Protocol,
    managed_fasten,
    managed_nbytes,
    managed_release,
    managed_shape,
    managed_share,
    managed_strides,
    protocol_name,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams
from dlbridge._core.dtypes cimport describe
from dlbridge._core.handover cimport find_device, hand_over, hand_over_copy, hand_over_itself, hand_over_upload, is_on
from dlbridge._core.ownership cimport OWNS_LOOSE
from dlbridge._core.place cimport UPLOAD, place
from dlbridge._core.plan cimport (
    Decision,
    Findings,
    Route,
    decide,
    find_route,
    fits,
    gather,
    is_copy,
    kept_route,
    offers_of,
    reason_text,
    reason_way_out,
    taken_route,
)
from dlbridge._core.quick cimport PyMethodDef, PyObject_Vectorcall, put_in_front
from dlbridge._core.request cimport COPY_ALWAYS, Request, parse_request, wants_versioned
from dlbridge._core.sources.registry cimport acquire_by, has_offer, reads_by_copy
from dlbridge._core.targets.consumer cimport call_upload
from dlbridge._core.targets.registry cimport find_target, versioned_capsule
from dlbridge._core.targets.target cimport Target
from dlbridge.tensor cimport Tensor, new_tensor

DLPACK_VERSION = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION)


def convert(src, to, *, device=None, copy=None, stream=None, readonly="copy", detach=False):
    """Give an array of one library to another, without copying where that is possible.

    Parameters
    ----------
    src : object
        Anything with the C exchange API, ``__dlpack__``, ``__cuda_array_interface__``, ``__array_struct__``,
        ``__array_interface__``, one of Arrow's C interfaces or the buffer protocol; or a DLPack capsule, which is
        consumed.
    to : str, module, type, array or namespace
        The target: ``"torch"``, ``torch``, ``torch.Tensor``, an array (its library and device), or any namespace with
        ``from_dlpack``. :func:`dlbridge.targets` lists the names.
    device : str, tuple or device object, optional
        Where the result shall be: ``"cpu"``, ``"cuda:1"``, ``(type, id)``. None leaves the memory where it is: memory
        never changes device without being asked to.
    copy : bool, optional
        None copies only if the target cannot hold the memory as it is, False never copies, True always does.
    stream : int or stream object, optional
        The consumer's stream, numbered as in the array API standard. Host memory has no stream.
    readonly : {"copy", "share", "error"}
        What to do with read-only memory if the target has no flag for it: copy it, share it (you promise not to
        write), or raise. Targets that have such a flag always share.
    detach : bool
        Take the data of a torch tensor that requires a gradient.

    Returns
    -------
    array
        An array of the target's library; src itself if it is one already. It shares the memory of src and keeps it
        alive, unless a copy was needed or asked for. A copy has its own memory, writable and dense (but strides of 0
        stay in a copy that was made because of ``readonly``).

    Raises
    ------
    TypeError, ValueError
        A keyword has a value that it does not take.
    MemoryError
        A copy does not fit into the memory available.
    UnsupportedError
        src offers no protocol, or the target is unknown.
    ConversionError
        The memory cannot be described for that target.
    CopyRequiredError
        A copy is needed and ``copy=False``.
    DeviceError
        The memory is not on the device where it is wanted.
    MissingLibraryError
        The target's library is not installed.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> source = bytearray(8)
    >>> array = dlbridge.convert(source, "numpy")
    >>> array[0] = 7
    >>> source[0]
    7
    """
    cdef Request request
    cdef Route route = route_for(&request, src, to, device, copy, stream, readonly, detach)
    return carry(src, route, &request)


def asdlpack(src, *, device=None, copy=None, stream=None, readonly="copy", detach=False):
    """Wrap any array in a :class:`Tensor`, which every library can consume.

    Parameters
    ----------
    src, device, copy, detach
        As for :func:`convert`.
    stream : int or stream object, optional
        The stream on which the memory will be used. None leaves that to the consumers: each names its own stream, or
        means the legacy default one. Host memory has no stream.
    readonly : {"copy", "share", "error"}
        What a legacy capsule of the Tensor does with read-only memory, since such a capsule has no flags. The Tensor
        itself and its versioned capsules share the memory and flag it as read-only.

    Returns
    -------
    Tensor
        It shares the memory of src and keeps it alive, unless a copy was needed (bytes in the other order, strides that
        are not multiples of the item size) or asked for. A Tensor is returned as it is.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> tensor = dlbridge.asdlpack(b"Hello!")
    >>> numpy.from_dlpack(tensor).tobytes(), tensor.readonly
    (b'Hello!', True)
    """
    cdef Request request
    cdef Tensor tensor
    cdef Route route
    parse_request(&request, device, copy, stream, readonly, detach)
    route = aim(&request, find_route(src, "dlbridge"))
    if route.already and is_already(src, &request):
        return same_or_another(src, &request)
    tensor = carry(src, route, &request)
    tensor.policy = request.readonly
    return tensor


cdef Tensor same_or_another(Tensor tensor, const Request* request):
    """The Tensor itself, or a new Tensor over its memory with another policy or for another stream."""
    cdef bint streams = has_streams(tensor.managed.abi.dl_tensor.device.device_type)
    cdef Managed* managed
    if tensor.policy == request.readonly and not (streams and request.has_stream):
        return tensor
    managed = managed_share(tensor.managed)
    try:
        if streams:
            device_operations().inherit(managed, tensor.managed)
            hand_over(managed, None, 0, request)
    except BaseException:
        managed_release(managed)
        raise
    return new_tensor(managed, request.readonly)


def from_dlpack(x, /, *, device=None, copy=None):
    """The array API standard's function: a :class:`Tensor` over the memory of ``x``.

    Parameters
    ----------
    x : object
        As for :func:`asdlpack`: arrays without ``__dlpack__`` and capsules are taken too.
    device, copy
        As in the standard, and as for :func:`convert`.

    Returns
    -------
    Tensor
        It shares the memory of x and keeps it alive, unless a copy was needed or asked for.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> dlbridge.from_dlpack(numpy.arange(3)).shape
    (3,)
    """
    return asdlpack(x, device=device, copy=copy)


def to_dlpack(src, *, stream=None, max_version=None, readonly="copy"):
    """Put any array into a DLPack capsule, for one consumer.

    Parameters
    ----------
    src : object
        As for :func:`convert`.
    stream : int or stream object, optional
        The consumer's stream.
    max_version : tuple of int, optional
        From ``(1, 0)`` on the capsule is a "dltensor_versioned", which flags read-only memory; otherwise it is a
        "dltensor".
    readonly : {"copy", "share", "error"}
        What to do with read-only memory in a "dltensor", which cannot flag it.

    Returns
    -------
    PyCapsule
        It shares the memory of src and keeps it alive until its consumer lets it go.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> capsule = dlbridge.to_dlpack(numpy.zeros(3))
    >>> dlbridge.convert(capsule, "numpy").sum()
    np.float64(0.0)
    """
    cdef Request request
    cdef object to = "dlpack"
    if wants_versioned(max_version):
        to = versioned_capsule()
    parse_request(&request, None, None, stream, readonly, False)
    return carry(src, aim(&request, find_route(src, to)), &request)


# ---- without keywords ------------------------------------------------------------------------------------------------

cdef PyMethodDef CONVERT
cdef PyMethodDef ASDLPACK
cdef object whole_convert = convert
cdef object whole_asdlpack = asdlpack


cdef object convert_plainly(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names):
    """convert(src, to) by a kept route, where there is one. An array as ``to`` never has a kept route."""
    cdef PyObject* found
    cdef Route route
    if count == 2 and names == NULL:
        found = kept_route(arguments[0], arguments[1])
        if found != NULL:
            route = <Route> taken_route(found)
            return carry(<object> arguments[0], route, &route.plain)
    return PyObject_Vectorcall(whole_convert, arguments, count, names)


cdef object asdlpack_plainly(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names):
    """asdlpack(src) by a kept route, where there is one.

    A Tensor takes the long way, because its policy may differ from the default one.
    """
    cdef PyObject* found
    cdef Route route
    if count == 1 and names == NULL:
        found = kept_route(arguments[0], <PyObject*> "dlbridge")
        if found != NULL:
            route = <Route> taken_route(found)
            if not route.already:
                return carry(<object> arguments[0], route, &route.plain)
    return PyObject_Vectorcall(whole_asdlpack, arguments, count, names)


convert = put_in_front(&CONVERT, convert_plainly, whole_convert)
asdlpack = put_in_front(&ASDLPACK, asdlpack_plainly, whole_asdlpack)


# ---- acquire, place, deliver -----------------------------------------------------------------------------------------

cdef Route route_for(
    Request* request, object src, object to, object device, object copy, object stream, object readonly, object detach,
):
    parse_request(request, device, copy, stream, readonly, detach)
    if type(to) is not str:
        to = resolve_array(to, request)
    return aim(request, find_route(src, to))


cdef Route aim(Request* request, Route route):
    """Note in the request which target's current stream counts."""
    request.target = route.plain.target
    request.current_stream = route.plain.current_stream
    return route


cdef bint is_already(object src, const Request* request) except -1:
    """Whether src, which is of the target's own type, can be returned as it is."""
    return request.copy != COPY_ALWAYS and (not request.has_device or is_on(src, &request.device))


cdef inline object carry(object src, Route route, const Request* request):
    """Convert src by a route.

    The caller holds a reference to the route, and with it to the request in it: a producer's code can register a source
    or a target, which clears the kept routes.
    """
    cdef Managed* managed
    cdef Target target = route.target
    if route.already and is_already(src, request):
        return hand_over_itself(src, request) if request.has_stream else src
    managed = acquire_by(route.offers, src, request)
    if managed.owns != OWNS_LOOSE and fits(managed, target, request):
        return target.deliver(managed, target)
    return carry_placed(managed, target, request)


cdef object carry_placed(Managed* managed, Target target, const Request* request):
    """Convert memory that does not fit as it is, is on a device, or can still be let go by its owner.

    managed is stolen, also when this fails.
    """
    cdef Decision decision
    cdef Findings findings
    if fits(managed, target, request):
        managed_fasten(managed)
        return target.deliver(managed, target)
    try:
        _refused = gather(managed, target, request, &findings)
        decide(managed, target, request, &findings, &decision)
        hand_over(managed, target, decision.steps, request)
    except BaseException:
        managed_release(managed)
        raise
    if decision.steps:
        managed = hand_over_copy(place(managed, decision.steps, target.api), decision.steps, request)
    managed_fasten(managed)
    if decision.steps & UPLOAD:
        return hand_over_upload(call_upload(managed, target, &request.device), target, request)
    return target.deliver(managed, target)


cdef object resolve_array(object to, Request* request):
    """The type of ``to``, if that is an array. Its device is the one wanted, unless the caller asks for another.

    The array itself is not handed on, since a kept route would keep it alive.
    """
    if type(to) is memoryview:
        return memoryview
    if isinstance(to, type) or not (
            hasattr(type(to), "__dlpack_device__") or hasattr(type(to), "__cuda_array_interface__")):
        return to
    if not request.has_device:
        find_device(to, &request.device)
        request.has_device = True
    return type(to)


def is_source(obj):
    """Whether an object offers a protocol, or a registered source takes it."""
    return has_offer(offers_of(obj), obj)


def check_target(to):
    """Raise what convert() raises if ``to`` is no target, or if its library is missing."""
    find_target(to).load()


def examine(dict facts, src, to, *, device=None, copy=None, stream=None, readonly="copy", detach=False):
    """Put into ``facts`` what convert() would find and do; nothing is copied, consumed or delivered."""
    cdef Request request
    cdef Decision decision
    cdef Findings findings
    cdef Managed* managed
    cdef Route route = route_for(&request, src, to, device, copy, stream, readonly, detach)
    facts["target"] = route.target.name
    request.peek = True
    if route.already and is_already(src, &request):
        facts["action"] = "return"
        facts["reason"] = f"src is of {route.target.name}'s own type already"
        return
    managed = acquire_by(route.offers, src, &request)
    try:
        facts["protocol"] = protocol_name(<Protocol> managed.protocol)
        facts["dtype"] = describe(managed.abi.dl_tensor.dtype)
        facts["device"] = device_name(managed.abi.dl_tensor.device)
        facts["shape"] = managed_shape(managed)
        facts["strides"] = managed_strides(managed)
        facts["strides_unit"] = "bytes" if managed.marks & BYTE_STRIDES else "elements"
        facts["nbytes"] = managed_nbytes(managed)
        facts["readonly"] = bool(managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY)
        _refused = gather(managed, route.target, &request, &findings)
        decide(managed, route.target, &request, &findings, &decision)
        by_copy = reads_by_copy(route.offers)
        facts["action"] = "copy" if is_copy(&decision) or by_copy else "share"
        if by_copy:
            facts["reason"] = "memory is read by a copy, which is all that its library gives"
            facts["way_out"] = "nothing to do: it is copied"
        elif decision.reason:
            facts["reason"] = reason_text(managed, route.target, decision.reason)
            facts["way_out"] = reason_way_out(decision.reason)
    finally:
        managed_release(managed)
