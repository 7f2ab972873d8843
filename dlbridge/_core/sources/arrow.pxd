"""Arrow's C interfaces."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object holder, object facts, str attribute)
