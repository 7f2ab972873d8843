"""What the caller asked for: the keywords of convert(), checked once and held as plain C."""

from libc.stdint cimport int64_t

from dlbridge.abi cimport DLDevice


cdef enum CopyPolicy:
    COPY_IF_NEEDED
    COPY_NEVER
    COPY_ALWAYS

cdef enum ReadonlyPolicy:
    READONLY_COPY
    READONLY_SHARE
    READONLY_ERROR

ctypedef struct Request:
    bint has_device
    DLDevice device             # where the result shall be, if has_device
    CopyPolicy copy
    ReadonlyPolicy readonly
    bint detach
    bint has_stream
    int64_t stream              # the consumer's, if has_stream
    bint peek                   # look only: leave capsules as they are, order no streams


cdef Request NOTHING_ASKED      # every keyword at its default

cdef int parse_request(
    Request* request, object device, object copy, object stream, object readonly, object detach) except -1
cdef bint wants_versioned(object max_version) except -1
