"""numpy.ndarray and its subclasses, through NumPy's C API."""

from cpython.object cimport PyObject

from dlbridge._core.block cimport Managed
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts, str attribute)
# The object that an array has its memory from, as NumPy noted it; None if the memory is the array's own.
cdef object base_of(object array)
# A new reference to an ndarray over memory that the caller keeps; it has no base.
cdef PyObject* array_over(const Managed* memory) except NULL
