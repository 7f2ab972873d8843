"""``__dlpack__``, and DLPack capsules themselves."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object holder, object facts, str attribute)
# Acquires by the method ``__dlpack__``; NULL if the object has none after all.
cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL
cdef Offer offer_method(object method, object facts)
# Whether a deleter is code of a library all of whose exports are constant.
cdef bint frees_constant(const void* deleter) except -1
