"""The order in which sources are asked, and the sources that users add."""

from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM

from dlbridge._core.block cimport Managed
from dlbridge._core.cache cimport OFFERS, Entry, cached_of_type, steal
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer


# An Acquire whose caller itself checks whether it left an exception.
ctypedef Managed* (*AcquireOrLeave)(object obj, Offer offer, const Request* request) noexcept


cdef class Offers(Entry):
    cdef tuple offers           # of Offer, in the order in which they are asked
    # What trees/leaf finds when it first meets an object of the type in a batch:
    cdef bint has_role          # whether it was found, and lasts
    cdef int role               # leaf.Role
    cdef bint records           # whether they are arrays that may have fields, as NumPy's
    cdef bint slot_alone        # whether they are arrays with nothing but a buffer slot, which may give no buffer


cdef inline tuple offers_for_type(object kind):
    """The offers that may serve a type, in the order in which they are asked. The last asks the instance itself."""
    cdef PyObject* found = cached_of_type(OFFERS, <PyObject*> kind, <PyObject*> None)
    return (<Offers> steal(found)).offers if found != NULL else find_offers(kind).offers

cdef Offers find_offers(object kind)
cdef object unsupported(object src, object facts)
cdef bint has_offer(tuple offers, object obj) except -1
cdef bint has_slot_alone(tuple offers, object kind) except -1
cdef bint gives_buffer(object obj) except -1

cdef inline Managed* acquire_by(tuple offers, object src, const Request* request) except NULL:
    """Ask one offer after the other. If a producer's own code raises, no other offer is asked."""
    # The first offer nearly always serves.
    cdef Offer offer = <Offer> PyTuple_GET_ITEM(offers, 0)
    cdef Managed* managed = (<AcquireOrLeave> offer.acquire)(src, offer, request)
    if managed != NULL:
        return managed
    return acquire_by_others(offers, src, request)

cdef Managed* acquire_by_others(tuple offers, object src, const Request* request) except NULL
