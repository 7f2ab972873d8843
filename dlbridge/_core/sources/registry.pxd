"""The order in which sources are asked, and the sources that users add."""

from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer


cdef tuple find_offers(object kind)
cdef bint has_instance_offer(object obj) except -1

cdef inline Managed* acquire_by(tuple offers, object src, const Request* request) except NULL:
    """Ask one after the other; a producer whose own code ran and failed is the last that is asked."""
    cdef Managed* managed
    cdef Offer offer
    if PyTuple_GET_SIZE(offers):
        # The first of them serves nearly always.
        offer = <Offer> PyTuple_GET_ITEM(offers, 0)
        managed = offer.acquire(src, offer, request)
        if managed != NULL:
            return managed
    return acquire_by_others(offers, src, request)

cdef Managed* acquire_by_others(tuple offers, object src, const Request* request) except NULL
