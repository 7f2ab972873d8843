"""Arrow's C interfaces."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts)
cdef Offer offers_instance(object obj, object facts)
