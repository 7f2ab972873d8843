"""``__cuda_array_interface__``."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object holder, object facts, str attribute)
