"""The buffer protocol, PEP 3118."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts)

cdef class HeldBuffer:
    cdef object exporter        # view.obj; without an object field the class would get no trashcan
    cdef Py_buffer view
