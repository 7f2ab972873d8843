"""The request: the keywords of convert(), checked once and held as plain C."""

from cpython.long cimport PyLong_AsLongAndOverflow, PyLong_Check
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE

from dlbridge._core.abi cimport DLPACK_MAJOR_VERSION, STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT, STREAM_UNORDERED
from dlbridge._core.devices.table cimport parse_device
from dlbridge._core.late cimport load_module

from dlbridge.errors import DeviceError, refusal, shown

NOTHING_ASKED.has_device = NOTHING_ASKED.has_stream = NOTHING_ASKED.detach = NOTHING_ASKED.peek = False
NOTHING_ASKED.narrow = NOTHING_ASKED.c_order = False
NOTHING_ASKED.copy = COPY_IF_NEEDED
NOTHING_ASKED.readonly = READONLY_COPY

cdef dict READONLY_POLICIES = {"copy": READONLY_COPY, "share": READONLY_SHARE, "error": READONLY_ERROR}


cdef int parse_request(
    Request* request, object device, object copy, object stream, object readonly, object detach, object narrow,
    object order,
) except -1:
    request[0] = NOTHING_ASKED
    parse_device_keyword(request, device)
    parse_stream_keyword(request, stream)
    parse_copy(request, copy)
    parse_readonly(request, readonly)
    request.detach = parse_switch("detach", detach)
    request.narrow = parse_switch("narrow", narrow)
    request.c_order = parse_order(order)


cdef int parse_keywords(Request* request, dict keywords) except -1:
    get = keywords.get
    return parse_request(request, get("device"), get("copy"), get("stream"), get("readonly", "copy"),
                         get("detach", False), get("narrow", False), get("order"))


cdef int keyword_of(PyObject* name) noexcept:
    # Keywords in Python's code are interned, so two of the same text are one object.
    return (
        <int> KEYWORD_COPY if name == <PyObject*> "copy" else
        <int> KEYWORD_READONLY if name == <PyObject*> "readonly" else
        <int> KEYWORD_DEVICE if name == <PyObject*> "device" else
        <int> KEYWORD_STREAM if name == <PyObject*> "stream" else
        <int> KEYWORD_DETACH if name == <PyObject*> "detach" else
        <int> KEYWORD_NARROW if name == <PyObject*> "narrow" else
        <int> KEYWORD_ORDER if name == <PyObject*> "order" else -1
    )


cdef int parse_keyword(Request* request, int keyword, object value) except -1:
    if keyword == KEYWORD_DEVICE:
        parse_device_keyword(request, value)
    elif keyword == KEYWORD_STREAM:
        parse_stream_keyword(request, value)
    elif keyword == KEYWORD_COPY:
        parse_copy(request, value)
    elif keyword == KEYWORD_READONLY:
        parse_readonly(request, value)
    elif keyword == KEYWORD_DETACH:
        request.detach = parse_switch("detach", value)
    elif keyword == KEYWORD_NARROW:
        request.narrow = parse_switch("narrow", value)
    else:
        request.c_order = parse_order(value)


cdef int parse_device_keyword(Request* request, object device) except -1:
    request.has_device = device is not None
    if request.has_device:
        parse_device(device, &request.device)


cdef int parse_stream_keyword(Request* request, object stream) except -1:
    request.has_stream = stream is not None
    if request.has_stream:
        request.stream = parse_stream(stream, "convert")
        request.stream_object = <PyObject*> stream if keeps_handle(stream) else NULL


cdef Request request_of_copy(const Request* request) noexcept:
    cdef Request asked = request[0]
    asked.copy = COPY_IF_NEEDED
    if is_unordered(request):
        asked.has_stream = False        # stream=-1 is about the producer's work; this call made the copy
    return asked


cdef int parse_copy(Request* request, object copy) except -1:
    if copy is not None and copy is not True and copy is not False:
        raise TypeError(f"convert: copy {shown(copy)}: is not one of None, True and False (None copies only if needed)")
    request.copy = COPY_ALWAYS if copy is True else COPY_NEVER if copy is False else COPY_IF_NEEDED


cdef bint parse_switch(str name, object value) except -1:
    if value is not True and value is not False:
        raise TypeError(f"convert: {name} {shown(value)}: is neither True nor False (pass one)")
    return value is True


cdef bint parse_order(object order) except -1:
    if order is not None and not (isinstance(order, str) and order == "C"):
        raise ValueError(f'convert: order {shown(order)}: is neither None nor "C" (None leaves the strides alone)')
    return order is not None


cdef int parse_readonly(Request* request, object readonly) except -1:
    # Literals are interned too; other strings are compared by their text.
    if readonly is "copy" or readonly is "share":
        request.readonly = READONLY_COPY if readonly is "copy" else READONLY_SHARE
        return 0
    policy = READONLY_POLICIES.get(readonly) if isinstance(readonly, str) else None
    if policy is None:
        raise ValueError(
            f'convert: readonly {shown(readonly)}: is not one of "copy", "share" and "error" '
            '("share" promises not to write)')
    request.readonly = policy


cdef int64_t parse_stream(object stream, str stage) except? -2:
    """The number of a stream, which is given as an integer of the array API standard or as a stream object."""
    if PyLong_Check(stream) and type(stream) is not bool:
        return checked_stream(stream, stage)
    handle = stream_handle(stream)
    if not PyLong_Check(handle) or type(handle) is bool:
        raise TypeError(f"{stage}: stream {shown(stream)}: has no handle, and is none (pass the library's stream, or "
                        "1, 2 or -1)")
    # The 0 of a stream object is not ambiguous: the driver's handle 0 is the legacy default stream, unless the program
    # is built otherwise.
    return checked_stream(handle, stage) if handle else STREAM_LEGACY_DEFAULT


cdef object stream_handle(object stream):
    """The handle that a stream object names, by ``__cuda_stream__`` or by an attribute of torch, CuPy or Numba."""
    handle = None
    if hasattr(type(stream), "__cuda_stream__"):
        answer = stream.__cuda_stream__()       # the version of the protocol, and the handle
        handle = answer[1] if isinstance(answer, (tuple, list)) and len(answer) == 2 else None
    else:
        # The streams of torch, CuPy and Numba have their handles in attributes of different names.
        for field in ("cuda_stream", "ptr", "handle"):
            value = getattr(stream, field, None)
            if value is not None:
                # Numba's handle is an object that is an integer, or a ctypes pointer, whose value is None if it is 0.
                handle = getattr(value, "value", value)
                handle = 0 if handle is None else handle
                break
    if handle is not None and not PyLong_Check(handle) and hasattr(type(handle), "__int__"):
        try:
            handle = int(handle)    # a driver binding has its own type for handles
        except (TypeError, ValueError, OverflowError):
            handle = None
    return handle


cdef object keeps_stream = None         # of libraries/library; kept, since each hand-over of a stream object calls it


cdef bint keeps_handle(object stream) except -1:
    """Whether a stream lives as long as this object. An integer keeps no stream alive."""
    global keeps_stream
    if stream is None or PyLong_Check(stream):
        return False
    if keeps_stream is None:
        keeps_stream = load_module("dlbridge.libraries.library").keeps_stream
    return keeps_stream(stream)


cdef object stream_and_keeper(object stream, int64_t* number):
    number[0] = stream_handle(stream) or STREAM_LEGACY_DEFAULT
    return stream if number[0] > STREAM_PER_THREAD_DEFAULT and keeps_handle(stream) else None


cdef int64_t checked_stream(object handle, str stage) except? -2:
    handle = handle if type(handle) is int else int.__int__(handle)     # a subclass may define its own comparisons
    if handle == 0 or handle < STREAM_UNORDERED:
        raise refusal(DeviceError, stage, "stream", handle,
                      "is ambiguous, and forbidden by the array API standard",
                      "pass 1 for the legacy default stream, 2 for the per-thread one, -1 for no ordering")
    if handle > LARGEST_HANDLE:
        raise refusal(DeviceError, stage, "stream", handle, "is no handle of 64 bits", "pass the stream object")
    return handle


cdef bint wants_versioned(object max_version) except -1:
    """Whether a consumer with this max_version takes versioned capsules. None comes from a consumer older than them."""
    cdef int overflow = 0
    if max_version is None:
        return False
    if not PyTuple_Check(max_version) or PyTuple_GET_SIZE(max_version) != 2 or not (
            PyLong_Check(<object> PyTuple_GET_ITEM(max_version, 0))
            and PyLong_Check(<object> PyTuple_GET_ITEM(max_version, 1))):
        raise TypeError(f"dlpack: max_version {shown(max_version)}: is not a pair of integers (pass (1, 3), or None)")
    major = PyLong_AsLongAndOverflow(<object> PyTuple_GET_ITEM(max_version, 0), &overflow)
    return overflow > 0 or (overflow == 0 and major >= DLPACK_MAJOR_VERSION)
