"""``__array_interface__``."""

from dlbridge._core.block cimport Managed
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object holder, object facts, str attribute)
# Whether the interface of an object has another address now, while the first one is held.
cdef bint is_made_anew(const Managed* first, object obj) except -1
