"""Route: how a type reaches a target, cached. decide: share or copy, and why, from facts alone."""

from libc.stdint cimport int32_t

from dlbridge.managed cimport Managed
from dlbridge.request cimport Request
from dlbridge.sources.offer cimport Offer
from dlbridge.targets.target cimport Target


cdef enum Reason:
    NO_REASON = 0
    COPY_ASKED
    BYTE_ORDER
    LAZY_BITS
    ODD_STRIDE
    NEGATIVE_STRIDE
    ZERO_STRIDE
    HOLES
    MISALIGNED
    ELEMENT_FORM
    READ_ONLY_MEMORY


ctypedef struct Decision:
    int32_t steps           # place.Step, or'ed; 0 shares
    Reason reason           # the first that made a copy necessary


cdef class Route:
    cdef object source_type
    cdef object to
    cdef readonly Target target
    cdef readonly list offers           # of Offer, in the order they are tried
    cdef bint already                   # the type is the target's own


cdef Route find_route(object src, object to)
cdef int decide(const Managed* managed, Target target, const Request* request, Decision* out) except -1
cdef bint is_copy(const Decision* decision) noexcept nogil
cdef str reason_text(const Managed* managed, Target target, Reason reason)
cdef str reason_way_out(Reason reason)
