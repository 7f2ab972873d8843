"""Arrow's streams: chunks of one type."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer


# A block for the chunks of a stream, which is moved out of its capsule.
cdef Managed* take_stream(object capsule, Offer offer, const Request* request) except NULL
