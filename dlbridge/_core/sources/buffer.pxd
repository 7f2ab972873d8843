"""The buffer protocol, PEP 3118."""

from cpython.object cimport PyTypeObject

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts, str attribute)

cdef extern from *:
    """
    #define dlbridge_counts_exports(type) ((type)->tp_as_buffer && (type)->tp_as_buffer->bf_releasebuffer)
    #define dlbridge_has_buffer(type) \\
        (((PyTypeObject *) (type))->tp_as_buffer && ((PyTypeObject *) (type))->tp_as_buffer->bf_getbuffer)
    """
    bint has_buffer "dlbridge_has_buffer"(object kind) noexcept
    # Whether the exporters of a type are told when their buffer is released, as those are that can take their memory
    # back.
    bint counts_exports "dlbridge_counts_exports"(PyTypeObject* kind) noexcept

# Takes an exporter's buffer, and holds it.
cdef HeldBuffer held_buffer(object exporter, int flags)

cdef class HeldBuffer:
    cdef object exporter        # without an object field the class would get no trashcan
    cdef Py_buffer view
