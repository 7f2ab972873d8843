"""``__dlpack__``, and DLPack capsules themselves."""

from dlbridge.managed cimport Managed
from dlbridge.request cimport Request
from dlbridge.sources.offer cimport Offer


cdef Offer offers(object kind)
cdef Offer offers_instance(object obj)
cdef Managed* take_capsule(object capsule, bint peek) except NULL
