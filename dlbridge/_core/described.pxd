"""Memory as a user describes it: a dtype and a shape for bytes, or all that is to be known of an address."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.route cimport Route


# Acquires src; bytes may be seen with another dtype or shape.
cdef Managed* acquire_seen(Route route, object src, object dtype, object shape, const Request* request) except NULL
# Refuses dtype=, shape= and out=, which are for one array, where there are several.
cdef int refuse_several(Route route, object src, str field, object value) except -1
# Compact memory of the host for a shape and a dtype that a user gave: its description alone, without memory.
cdef Managed* described_by(str stage, object shape, object dtype) except NULL
cdef object convert_seen(object src, object to, object dtype, object shape, Request* request)
