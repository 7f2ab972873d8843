"""The fast paths as one source: the first that knows a type."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts)
