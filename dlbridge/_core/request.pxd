"""The request: the keywords of convert(), checked once and held as plain C."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, STREAM_UNORDERED, DLDevice


cdef extern from *:
    const int64_t LARGEST_HANDLE "INT64_MAX"

# The keyword copy. COPY_UNLESS_CONSTANT is for prefetch(): the caller may write to a batch, or to what it came from.
cdef enum CopyPolicy:
    COPY_IF_NEEDED
    COPY_NEVER
    COPY_ALWAYS
    COPY_UNLESS_CONSTANT

cdef enum ReadonlyPolicy:
    READONLY_COPY
    READONLY_SHARE
    READONLY_ERROR

# The keywords of convert(), in the order in which they are parsed.
cdef enum Keyword:
    KEYWORD_DEVICE
    KEYWORD_STREAM
    KEYWORD_COPY
    KEYWORD_READONLY
    KEYWORD_DETACH
    KEYWORD_NARROW
    KEYWORD_ORDER
    KEYWORDS

# Finds the stream that a target's library uses on a device, as the array API standard numbers it. Returns the object
# that keeps its handle alive, or None.
ctypedef object (*CurrentStream)(PyObject* target, const DLDevice* device, int64_t* out)

ctypedef struct Request:
    bint has_device
    DLDevice device             # where the result shall be, if has_device
    CopyPolicy copy
    ReadonlyPolicy readonly
    bint detach
    bint narrow                 # whether a wide type may become the target's nearest one
    bint c_order                # whether the result shall be compact, in C order
    bint has_stream
    int64_t stream              # the consumer's stream, if has_stream
    PyObject* stream_object     # the object that named the stream, borrowed from the caller; or NULL
    CurrentStream current_stream    # of the target; NULL if its library names its stream itself
    PyObject* target            # borrowed
    bint peek                   # only look: leave capsules as they are, and order no streams
    PyObject* queued            # a list, borrowed, of small uploads that the caller waits for; NULL: none is left to it


cdef Request NOTHING_ASKED      # every keyword at its default

cdef int parse_request(
    Request* request, object device, object copy, object stream, object readonly, object detach, object narrow,
    object order,
) except -1
cdef inline bint is_unordered(const Request* request) noexcept nogil:
    return request.has_stream and request.stream == STREAM_UNORDERED

# The request for the rest of the way, once a copy was made.
cdef Request request_of_copy(const Request* request) noexcept
# The Keyword of an interned name, or -1.
cdef int keyword_of(PyObject* name) noexcept
cdef int parse_keyword(Request* request, int keyword, object value) except -1
cdef int parse_keywords(Request* request, dict keywords) except -1
cdef inline object consumer_stream(const Request* request, const DLDevice* device, int64_t* out):
    """Find the stream on which the consumer will use the memory: the one asked for, or its library's current one.

    Returns the object that keeps its handle alive, or None.
    """
    if not request.has_stream and request.current_stream != NULL:
        return request.current_stream(request.target, device, out)
    out[0] = request.stream if request.has_stream else STREAM_LEGACY_DEFAULT
    return <object> request.stream_object if request.stream_object != NULL else None

cdef object stream_handle(object stream)
cdef bint keeps_handle(object stream) except -1
# The number of a library's own stream object; what keeps its handle alive is returned, or None where it lasts.
cdef object stream_and_keeper(object stream, int64_t* number)
cdef int64_t parse_stream(object stream, str stage) except? -2
cdef bint wants_versioned(object max_version) except -1
