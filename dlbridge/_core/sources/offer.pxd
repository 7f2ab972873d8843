"""Offer: what one protocol found out about a type, once, so that every acquire of that type is a plain call."""

from dlbridge._core.abi cimport DLPackExchangeAPI
from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request


cdef class Offer

# Gives the memory of obj, unmoved and uncopied. NULL without an exception set: this object declines after all, ask the
# next protocol (its attribute raised AttributeError, say).
ctypedef Managed* (*Acquire)(object obj, Offer offer, const Request* request) except? NULL

# What is known of a type (libraries/library.Arrays), read once: facts whose value is True, and those that have a value.
cdef enum Known:
    IMMUTABLE = 1
    FORGETS = 2
    REBOUND = 4
    NAMES_STREAM = 8
    NONE_IS_UNORDERED = 16
    DEFAULT_UNSAID = 32
    REPEATS_UNSAID = 64
    GRADIENT_FREE = 128
    ELEMENT_TYPE = 256
    STREAM_OBJECT = 512


cdef class Offer:
    cdef Acquire acquire
    cdef readonly str protocol              # the name of the source's file
    cdef readonly object facts              # libraries/library.Facts of the type
    cdef unsigned int known                 # Known, or'ed
    cdef const DLPackExchangeAPI* api       # exchange
    cdef unsigned int keywords              # dlpack: what __dlpack__ takes
    cdef bint sole                          # no other protocol may serve this type
    cdef bint optional                      # others are asked after it, so it may decline
    cdef object function                    # function: what gives something with a protocol


# What is known of a type, and the first part of its module's name (libraries/library).
cdef object facts_of(object kind)
cdef str top_module(object kind)
cdef Offer new_offer(str protocol, Acquire acquire, object facts)
# The row of the dtype that the library names, or NO_ROW where its export says it.
cdef int element_row(object obj, Offer offer) except -2
# On failure the block is released.
cdef Managed* with_row(Managed* managed, int row, Offer offer) except NULL
