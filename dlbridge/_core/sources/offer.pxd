"""Offer: what one protocol found out about a type, once, so that every acquire of that type is a plain call."""

from dlbridge._core.abi cimport DLPackExchangeAPI
from dlbridge._core.managed cimport Managed
from dlbridge._core.request cimport Request


cdef class Offer

# Gives the memory of obj, unmoved and uncopied. NULL without an exception set: this object declines after all, ask the
# next protocol (its attribute raised AttributeError, say).
ctypedef Managed* (*Acquire)(object obj, Offer offer, const Request* request) except? NULL


cdef class Offer:
    cdef Acquire acquire
    cdef readonly str protocol              # the name of the source's file
    cdef const DLPackExchangeAPI* api       # exchange
    cdef unsigned int keywords              # dlpack: what __dlpack__ takes
    cdef bint torch                         # a torch.Tensor: carries gradients and lazy bits beside its memory
    cdef bint names_stream                  # exchange: the table names the stream that the memory is ready on
    cdef str gradient_free                  # the attribute that says that no gradient is lost; or None
    cdef bint rebound                       # a torch Parameter: its module puts other memory under it (.data =)
    cdef bint immutable                     # read-only memory whose export has no way to say so
    cdef bint forgets                       # dlpack: its capsule does not keep the memory that it was made over
    cdef bint none_is_unordered             # dlpack: it has no -1
    cdef bint optional                      # others are asked after it, so it may decline
    cdef object has_bools                   # dlpack: whether the bytes of an object are bools; or None
    cdef dict ways_out                      # arrow: for what has no form there, by field; or None
    cdef object function                    # a registered acquire, given by a user


cdef str top_module(object kind)


cdef inline Offer new_offer(str protocol, Acquire acquire):
    cdef Offer offer = Offer.__new__(Offer)
    offer.protocol = protocol
    offer.acquire = acquire
    return offer
