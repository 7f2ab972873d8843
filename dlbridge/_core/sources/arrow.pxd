"""Arrow's C interfaces."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object holder, object facts, str attribute)
# Acquires what a bare capsule of a stream has.
cdef Managed* acquire_capsule(object capsule, Offer offer, const Request* request) except? NULL
# Acquires the array of a bare pair of capsules.
cdef Managed* acquire_pair(object pair, Offer offer, const Request* request) except? NULL
