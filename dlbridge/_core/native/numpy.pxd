"""numpy.ndarray and its subclasses, through NumPy's C API."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts)
