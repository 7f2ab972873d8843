"""``__dlpack__``, and DLPack capsules themselves."""

from dlbridge._core.managed cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind)
cdef Offer offers_instance(object obj)
cdef Managed* take_capsule(object capsule, bint peek) except NULL
