"""The bridge: acquire, place, deliver."""

import sys

from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION,
    STREAM_UNORDERED,
    DLDevice,
    DLTensor,
    kDLCUDA,
    kDLROCM,
)
from dlbridge._core.atomic cimport add, load
from dlbridge._core.block cimport (
    NOT_YET_OWNED,
    Managed,
    managed_count,
    managed_data,
    managed_nbytes,
    managed_own_storage,
    managed_release,
    managed_share,
)
from dlbridge._core.cache cimport ROUTES, cached, steal
from dlbridge._core.collector cimport pause_collector, resume_collector
from dlbridge._core.decision cimport READ_ONLY_MEMORY, WRITABLE_MEMORY, Decision, fits, is_copy
from dlbridge._core.described cimport Description, read_description, seen_as
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams, is_host
from dlbridge._core.dtypes cimport nearest_row, row_name
from dlbridge._core.handover cimport (
    hand_over,
    hand_over_copy,
    hand_over_itself,
    hand_over_library_copy,
    hand_over_upload,
    settle,
)
from dlbridge._core.location cimport find_device, is_on
from dlbridge._core.out cimport acquire_out, check_fit, check_out_type, check_reach
from dlbridge._core.place cimport (
    COPY,
    COPY_IN_TARGET,
    FETCH,
    NARROW,
    PASS_A_PART,
    REARRANGE,
    UPLOAD,
    copies_made,
    copy_into,
    is_bool,
    place,
)
from dlbridge._core.plan cimport SHARE, find_kernel, make_plan, row_for
from dlbridge._core.request cimport (
    COPY_ALWAYS,
    COPY_IF_NEEDED,
    KEYWORDS,
    NOTHING_ASKED,
    READONLY_SHARE,
    Request,
    keyword_of,
    parse_keyword,
    parse_request,
    wants_versioned,
)
from dlbridge._core.route cimport Route, aim, aim_at, array_type, find_route, route_to, share_directly, target_of
from dlbridge._core.sources.registry cimport acquire_by, has_offer, offers_for_type
from dlbridge._core.targets.consumer cimport call_kernel, call_upload
from dlbridge._core.targets.registry cimport find_target, versioned_capsule
from dlbridge._core.targets.target cimport Target
from dlbridge.tensor cimport Tensor, new_tensor

from dlbridge.errors import UnsupportedError

cdef extern from "Python.h":
    ctypedef struct PyMethodDef:
        const char* ml_name
        void* ml_meth
        int ml_flags
        const char* ml_doc
    int METH_FASTCALL
    int METH_KEYWORDS
    int PyModule_AddFunctions(object module, PyMethodDef* methods) except -1
    object PyObject_Vectorcall(object function, PyObject** arguments, size_t count, PyObject* names)

OF_TREES = ("device", "copy", "stream", "readonly", "detach", "narrow")
OPTIONS = (*OF_TREES, "dtype", "shape", "out")
DLPACK_VERSION = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION)


def convert(
    src, to, *, device=None, copy=None, stream=None, readonly="copy", detach=False, narrow=False,
    dtype=None, shape=None, out=None,
):
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
        Where the result shall be: ``"cpu"``, ``"cuda:1"``, ``(type, id)``, or the library's own device object or name.
        None leaves the memory where it is: memory never changes device without being asked to. Where the library
        numbers several devices of the host, as JAX can, ``"cpu"`` is any of them, and None is where the library makes
        new arrays.
    copy : bool, optional
        None copies only if the target does not support the memory as it is, False never copies, True always does.
    stream : int or stream object, optional
        The consumer's stream, numbered as in the array API standard. Host memory has no stream.
    readonly : {"copy", "share", "error"}
        What to do with memory that is read-only on one side and writable on the other: read-only memory if the target
        has no flag for it, and writable memory if the target's arrays are immutable (JAX, TensorFlow, pyarrow). Copy
        it, share it (you promise that nothing writes to it), or raise. All other memory is shared.
    detach : bool
        Take the data of a torch tensor that requires a gradient.
    narrow : bool
        Take the target's nearest type where it lacks a wide one (JAX without x64, MLX, Pillow): float64 becomes
        float32, complex128 complex64, and int64 int32. This rounds floating-point numbers, and is always a copy.
    dtype : str or dtype, optional
        How to see a source of bytes, such as a file's: ``"bfloat16"``, a typestr such as ``">f4"``, the dtype of a
        library such as torch, or what :class:`numpy.dtype` takes. Nothing is cast. Bytes are a buffer without a format,
        or an array of uint8 or int8 with one axis.
    shape : tuple of int, optional
        The shape of a source of bytes, in elements; one extent may be -1. Shape and dtype take all of the bytes. With a
        shape, an array of bytes in C order may have any number of axes.
    out : array, optional
        An array of the target's library in host memory, of any layout, that takes a copy and is returned. It has the
        dtype and the shape of the result, and may overlap the source.

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
        src offers no protocol, the target is unknown, or ``out`` is no array of it.
    ConversionError
        The memory cannot be described for that target or by ``dtype`` and ``shape``, a value does not fit into the
        narrower type, or ``out`` cannot be written or has another dtype or shape.
    CopyRequiredError
        A copy is needed and ``copy=False``.
    DeviceError
        The memory is not on the device where it is wanted.
    DeviceMemoryError
        A copy does not fit into the memory of the device.
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
    parse_request(&request, device, copy, stream, readonly, detach, narrow)
    if out is not None:
        return convert_into(src, to, dtype, shape, out, &request)
    if dtype is not None or shape is not None:
        return convert_bytes(src, to, dtype, shape, &request)
    return convert_to(src, to, &request)


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
    parse_request(&request, device, copy, stream, readonly, detach, False)
    if type(src) is Tensor and is_already(src, route_to(src, "dlbridge", &request), &request):
        return tensor_for(src, &request)
    tensor = convert_to(src, "dlbridge", &request)
    tensor.policy = request.readonly
    return tensor


cdef Tensor tensor_for(Tensor tensor, const Request* request):
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
        It shares the memory of src and keeps it alive until its consumer releases it.

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
    parse_request(&request, None, None, stream, readonly, False, False)
    return convert_to(src, versioned_capsule() if wants_versioned(max_version) else "dlpack", &request)


# ---- without Cython's wrapper ----------------------------------------------------------------------------------------

# For each call, Cython's wrapper of such a function fills in, counts and releases an object for each parameter. That is
# a third of what convert(src, to) costs beside the target library's own constructor. So a C function is in front of
# each wrapper. That of convert() serves calls with keywords that it knows, and that of asdlpack() serves asdlpack(src).
# They hand on every other call to the wrapper.

# A function of METH_FASTCALL | METH_KEYWORDS. names are the keywords of the last arguments, or NULL.
ctypedef object (*Quick)(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names)

cdef PyMethodDef[2] CONVERT      # the second ends the list
cdef PyMethodDef[2] ASDLPACK
cdef list texts = []            # kept for ever, since PyMethodDef has pointers into them
cdef object whole_convert = convert
cdef object whole_asdlpack = asdlpack


cdef object convert_plainly(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names):
    """convert(src, to) and convert(src, to=to) by a cached route, where there is one."""
    cdef PyObject* found
    cdef Route route
    if names == NULL and count == 2 or count == 1 and is_to(names):
        found = cached(ROUTES, arguments[0], arguments[1])
        if found != NULL:
            route = <Route> steal(found)
            if route.already or route.direct:
                return convert_by_route(<object> arguments[0], route, &route.plain)
            return convert_by_block(<object> arguments[0], route, &route.plain)
    return convert_by_keywords(arguments, count, names)


cdef inline bint is_to(PyObject* names) noexcept:
    return names != NULL and PyTuple_GET_SIZE(<tuple> names) == 1 and (
        PyTuple_GET_ITEM(<tuple> names, 0) == <PyObject*> "to")


cdef object convert_once(object src, object to, dict memo):
    """convert(src, to) in a tree: what is in several places is copied once.

    The memo has copies by the id of their source, with the source, so that no other object gets its id meanwhile. What
    is shared needs no memo. If another thread copies meanwhile, the memo is right all the same.
    """
    cdef PyObject* arguments[2]
    cdef int32_t before = load(&copies_made)
    if memo:
        found = memo.get(<size_t> <PyObject*> src)
        if found is not None:
            return found[1]
    arguments[0], arguments[1] = <PyObject*> src, <PyObject*> to
    result = convert_plainly(NULL, arguments, 2, NULL)
    if load(&copies_made) != before:
        memo[<size_t> <PyObject*> src] = src, result
    return result


cdef object convert_by_keywords(PyObject** arguments, Py_ssize_t count, PyObject* names):
    """convert() by keywords. The wrapper takes what is not known by its address."""
    cdef Request request = NOTHING_ASKED
    cdef PyObject* to = arguments[1] if count == 2 else NULL
    cdef PyObject* values[KEYWORDS]
    cdef PyObject* name
    cdef Py_ssize_t index
    cdef int keyword
    cdef bint wrapped = False
    memset(values, 0, sizeof(values))
    for index in range(0 if names == NULL else PyTuple_GET_SIZE(<tuple> names)):
        name = PyTuple_GET_ITEM(<tuple> names, index)
        keyword = keyword_of(name)
        if keyword >= 0:
            values[keyword] = arguments[count + index]
        elif name == <PyObject*> "to" and to == NULL:
            to = arguments[count + index]
        elif <object> name in OPTIONS or <object> name in ("src", "to"):
            wrapped = True          # names from a pickle are not interned
        else:
            raise wrong_keyword("convert", <object> name, OPTIONS)
    if wrapped or to == NULL or not 1 <= count <= 2:
        check_arguments(count, () if names == NULL else <tuple> names)
        return PyObject_Vectorcall(whole_convert, arguments, count, names)
    # In the order of parse_request(), whatever the order in the call, so that the first error is the same.
    for keyword in range(<int> KEYWORDS):
        if values[keyword] != NULL:
            parse_keyword(&request, keyword, <object> values[keyword])
    return convert_to(<object> arguments[0], <object> to, &request)


cdef int check_arguments(Py_ssize_t count, tuple names) except -1:
    if count > 2:
        raise TypeError(
            'convert: arguments: are more than src and to (the others are keywords, such as device="cpu")')
    for name, place in ("src", 1), ("to", 2):
        if count < place and name not in names:
            raise TypeError(f'convert: {name}: is missing (call dlbridge.convert(x, "torch"))')
    return 0


cdef object wrong_keyword(str function, object name, tuple options):
    from dlbridge._core.meant import about_keyword

    return about_keyword(function, name, options)


def check_keywords(str function, dict keywords):
    """Raise what convert() raises of the keywords that hold for every array of a tree."""
    cdef Request request
    for name in keywords:
        if name not in OF_TREES:
            raise wrong_keyword(function, name, OF_TREES)
    get = keywords.get
    parse_request(&request, get("device"), get("copy"), get("stream"), get("readonly", "copy"), get("detach", False),
                  get("narrow", False))


cdef object asdlpack_plainly(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names):
    """asdlpack(src) by a cached route, where there is one.

    A Tensor takes the long way, because its policy may differ from the default one.
    """
    cdef PyObject* found
    cdef Route route
    if count == 1 and names == NULL and type(<object> arguments[0]) is not Tensor:
        found = cached(ROUTES, arguments[0], <PyObject*> "dlbridge")
        if found != NULL:
            route = <Route> steal(found)
            return convert_by_block(<object> arguments[0], route, &route.plain)
    return PyObject_Vectorcall(whole_asdlpack, arguments, count, names)


cdef int put_in_front(PyMethodDef* method, Quick quick, object whole) except -1:
    """Put a builtin function with the name, the signature and the documentation of ``whole`` into this module.

    Without the GIL, Python counts no references to functions that were added in this way; otherwise threads that call
    one at the same time would wait for each other.
    """
    name = whole.__name__.encode()
    doc = f"{whole.__name__}{whole.__text_signature__}\n--\n\n{whole.__doc__}".encode()
    texts.extend((name, doc))
    method.ml_name = name
    method.ml_doc = doc
    method.ml_meth = <void*> quick
    method.ml_flags = METH_FASTCALL | METH_KEYWORDS
    return PyModule_AddFunctions(sys.modules[__name__], method)


put_in_front(CONVERT, convert_plainly, whole_convert)
put_in_front(ASDLPACK, asdlpack_plainly, whole_asdlpack)


# ---- acquire, place, deliver -----------------------------------------------------------------------------------------

cdef bint is_already(object src, Route route, const Request* request) except -1:
    """Whether src, which is of the target's own type, can be returned as it is."""
    return request.copy != COPY_ALWAYS and (
        not request.has_device or is_on(src, route.target.hosts, &request.device))


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


cdef inline object convert_by_block(object src, Route route, const Request* request):
    return deliver(acquire_by(route.offers, src, request), <Target> target_of(route), request, src)


cdef object convert_own(object src, Route route, const Request* request):
    """Return an array of the target's own as it is, or a copy of it, on the device that it is on if none is named."""
    cdef Request asked = request[0]
    if is_already(src, route, request):
        return hand_over_itself(src, request) if request.has_stream else src
    duplicate = route.target.facts.duplicate
    if duplicate is not None:
        return duplicate.value(src)
    if route.target.hosts > 1 and not request.has_device:
        find_device(src, route.target.hosts, &asked.device)
        asked.has_device = True
    return deliver_out_of_line(acquire_by(route.offers, src, &asked), route.target, &asked, src)


cdef Managed* acquire_seen(object src, Route route, object dtype, object shape, const Request* request) except NULL:
    """Acquire src; bytes may be seen with another dtype or shape."""
    cdef Description described
    if dtype is None and shape is None:
        return acquire_by(route.offers, src, request)
    read_description(dtype, shape, &described)
    return seen_as(acquire_by(route.offers, src, request), dtype, shape, &described)


cdef object convert_bytes(object src, object to, object dtype, object shape, Request* request):
    cdef Route route = route_to(src, to, request)
    if route.already and route.target.hosts > 1 and not request.has_device:
        find_device(src, route.target.hosts, &request.device)
        request.has_device = True
    return deliver_out_of_line(acquire_seen(src, route, dtype, shape, request), route.target, request)


cdef object convert_into(object src, object to, object dtype, object shape, object out, Request* request):
    """Copy src into an array that is there, and return that."""
    cdef Route route = route_to(src, to, request)
    cdef Managed* source
    cdef Managed* into
    if out is src and dtype is None and shape is None:
        managed_release(acquire_out(out, route.target, request))
        return out
    check_out_type(out, route.target, request)
    source = acquire_seen(src, route, dtype, shape, request)
    try:
        into = acquire_out(out, route.target, request)      # after what the source may have called
    except BaseException:
        managed_release(source)
        raise
    try:
        fill_out(into, source, route.target, request)
    finally:
        managed_release(into)
    if route.target.facts.written is not None:
        route.target.facts.written.value(out)
    return out


cdef int fill_out(Managed* into, Managed* source, Target target, const Request* request) except -1:
    """Copy source, which is stolen, into memory that is there."""
    cdef bint direct = is_fetched_as_it_is(into, source)
    if not direct:
        source = for_out(source, target, request)
    try:
        check_fit(source, into)
        if direct:
            check_reach(source, request)
            hand_over(source, target, FETCH, request)
            device_operations().fetch(source, managed_data(into), managed_data(source), managed_nbytes(source))
        else:
            copy_into(into, source)
    finally:
        managed_release(source)
    return 0


cdef bint is_fetched_as_it_is(const Managed* into, const Managed* source) noexcept:
    """Whether a device's memory has the very bytes that are wanted, so that they need no memory in between."""
    cdef const DLTensor* tensor = &source.abi.dl_tensor
    # Managed memory may be that of ``into``, too.
    return tensor.device.device_type in (kDLCUDA, kDLROCM) and (
        source.row == into.row and not source.marks | into.marks and not is_bool(source) and managed_count(source))


cdef Managed* for_out(Managed* managed, Target target, const Request* request) except NULL:
    """Memory that the CPU can read, in the type that ``narrow`` gives; managed is stolen."""
    cdef Request asked = request[0]
    cdef Tensor tensor
    if not is_host(managed.abi.dl_tensor.device.device_type):
        try:
            check_reach(managed, request)
        except BaseException:
            managed_release(managed)
            raise
        asked.copy, asked.readonly = COPY_IF_NEEDED, READONLY_SHARE
        tensor = deliver_out_of_line(managed, find_target("dlbridge"), &asked)
        managed = managed_share(tensor.managed)
    return narrowed(managed, target, request)


cdef Managed* narrowed(Managed* managed, Target target, const Request* request) except NULL:
    """Memory of the host in the type that the target gets; managed is stolen."""
    cdef int row
    try:
        row = row_for(managed, target, request) if request.narrow else managed.row
    except BaseException:
        managed_release(managed)
        raise
    return managed if row == managed.row else place(managed, COPY | NARROW, NULL)


cdef inline object deliver(Managed* managed, Target target, const Request* request, object src=None):
    """Give the target's library memory, placed if it does not fit as it is; managed is stolen, also when this fails.

    ``src`` is the array whose whole memory this is, if there is one.
    """
    if not fits(managed, target, request):
        return place_and_deliver(managed, target, request, src)
    if managed.owns == NOT_YET_OWNED:
        managed_own_storage(managed)
    return target.deliver(managed, target)


cdef object deliver_out_of_line(Managed* managed, Target target, const Request* request, object src=None):
    """deliver() where it is not in line, for what is rarely asked for."""
    return deliver(managed, target, request, src)


cdef object place_and_deliver(Managed* managed, Target target, const Request* request, object src):
    cdef Decision decision
    cdef int64_t stream
    try:
        make_plan(managed, target, request, src, &decision)
        if not decision.steps & REARRANGE:
            hand_over(managed, target, decision.steps, request)
    except BaseException:
        managed_release(managed)
        raise
    if is_copy(&decision):
        add(&copies_made, 1)
    if decision.steps & REARRANGE:
        return deliver_rearranged(managed, target, request, src, decision.steps)
    if decision.steps:
        managed = hand_over_copy(placed(managed, target, &decision), decision.steps, request)
    managed_own_storage(managed)
    if decision.steps & COPY_IN_TARGET:
        stream = settle(managed, decision.steps, request)
        return hand_over_library_copy(target.deliver(managed, target), target, stream)
    if decision.steps & UPLOAD:
        return hand_over_upload(call_upload(managed, target, &decision.upload), target, request)
    return target.deliver(managed, target)


cdef Managed* placed(Managed* managed, Target target, const Decision* decision) except NULL:
    """place(). An error for want of memory has the hint to share, where that is all that the copy was for."""
    try:
        return place(managed, decision.steps, target.api)
    except MemoryError as error:
        if decision.reason != READ_ONLY_MEMORY and decision.reason != WRITABLE_MEMORY:
            raise
        raise MemoryError(str(error).replace(PASS_A_PART, SHARE)) from None


# ---- copies by the kernels of a library ------------------------------------------------------------------------------

cdef object deliver_rearranged(
    Managed* managed, Target target, const Request* request, object src, int32_t steps,
):
    """Deliver a compact copy that a library makes on the device; managed is stolen."""
    cdef Request asked = request_of_copy(request)
    return deliver_out_of_line(rearranged(managed, src, steps), target, &asked)


cdef Managed* rearranged(Managed* managed, object src, int32_t steps) except NULL:
    """A compact copy on the same device, in the nearest dtype if the steps say so; managed is stolen.

    A library makes it by its kernels on its current stream, and the copy is ready there.
    """
    cdef Request plain = NOTHING_ASKED
    cdef DLDevice device = managed.abi.dl_tensor.device
    cdef int64_t nbytes = managed_nbytes(managed)
    cdef Managed* made
    plain.readonly = READONLY_SHARE
    try:
        dtype = row_name(nearest_row(managed.row)) if steps & NARROW else None
        kernel, name = find_kernel(managed, src)
    except BaseException:
        managed_release(managed)
        raise
    if name is None:
        managed_release(managed)
    else:
        src = convert_to(new_tensor(managed, READONLY_SHARE), name, &plain)
    array = call_kernel(kernel, src, dtype, &device, nbytes)
    made = acquire_by(offers_for_type(type(array)), array, &plain)
    made.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED     # so that it is not copied again
    return made


cdef Request request_of_copy(const Request* request) noexcept:
    """What is asked for a copy that was made on the way."""
    cdef Request asked = request[0]
    asked.copy = COPY_IF_NEEDED
    if asked.has_stream and asked.stream == STREAM_UNORDERED:
        asked.has_stream = False        # that is about the producer's work only, and the copy is this call's
    return asked


cdef object deliver_to(Managed* managed, object to, str otherwise):
    cdef Request request = NOTHING_ASKED
    cdef Route route
    try:
        route = delivery_to(to, otherwise, &request)
    except BaseException:
        managed_release(managed)
        raise
    return deliver_out_of_line(managed, route.target, &request)


cdef Route delivery_to(object to, str otherwise, Request* request):
    """The route to a target without a source, cached under None. ``otherwise`` is the target where ``to`` is an example
    that no library makes, such as bytes.
    """
    cdef PyObject* found = cached(ROUTES, <PyObject*> None, <PyObject*> to)
    cdef Route route
    if found != NULL:
        return aim(request, <Route> steal(found))
    kind = array_type(to)
    try:
        route = find_route(None, to if kind is None else kind)
    except UnsupportedError:
        if isinstance(to, (str, type)) or not has_offer(offers_for_type(type(to)), to):
            raise
        return route_to(None, otherwise, request)
    return aim_at(to, kind, route, request)


def target_name(to, imported=True):
    """The name of a target. Raises what convert() raises if it is none, or if its library is missing."""
    cdef bint collects
    cdef Target target
    kind = array_type(to)
    if not imported:
        collects = pause_collector()
        try:
            return find_target(to if kind is None else kind).name
        finally:
            resume_collector(collects)
    if kind is None:
        target = find_target(to)
        target.load()
        return target.name
    return find_route(to, kind).target.name         # the route is cached, for the conversion that follows
