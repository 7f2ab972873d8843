"""The fast paths as one source. The first of them that knows a type makes its offer."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts)
