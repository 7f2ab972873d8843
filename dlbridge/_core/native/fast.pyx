"""The fast paths as one source. The first of them that knows a type makes its offer."""

from dlbridge._core.native cimport numpy, torch
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts):
    offer = numpy.offers(kind, facts)
    return torch.offers(kind, facts) if offer is None else offer
