"""The fast paths as one source: the first that knows a type."""

from dlbridge._core.native cimport numpy, torch
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts):
    offer = numpy.offers(kind, facts)
    return torch.offers(kind, facts) if offer is None else offer
