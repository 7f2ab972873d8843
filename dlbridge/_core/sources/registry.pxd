"""The order in which sources are asked, and the sources that users add."""

from cpython.tuple cimport PyTuple_GET_ITEM

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer


cdef tuple find_offers(object kind)
cdef bint has_offer(tuple offers, object obj) except -1
# Whether the library gives nothing but a copy of its memory.
cdef bint reads_by_copy(tuple offers) noexcept

cdef inline Managed* acquire_by(tuple offers, object src, const Request* request) except NULL:
    """Ask one offer after the other. If a producer's own code raises, no other offer is asked."""
    # The first offer nearly always serves.
    cdef Offer offer = <Offer> PyTuple_GET_ITEM(offers, 0)
    cdef Managed* managed = offer.acquire(src, offer, request)
    if managed != NULL:
        return managed
    return acquire_by_others(offers, src, request)

cdef Managed* acquire_by_others(tuple offers, object src, const Request* request) except NULL
