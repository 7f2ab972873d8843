"""The buffer protocol, PEP 3118."""

from dlbridge.sources.offer cimport Offer


cdef Offer offers(object kind)
