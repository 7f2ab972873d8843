"""The Offer: what one protocol found out about a type, once, so that each acquire of that type is a plain call."""

from libc.stdint cimport int64_t, uint64_t

from dlbridge._core.abi cimport DLDevice, DLPackExchangeAPI
from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request


cdef class Offer

# Makes a block over the memory of obj, which is neither moved nor copied. NULL without an exception means that this
# object declines after all (its attribute raised AttributeError, for example), and the next protocol is to be asked.
ctypedef Managed* (*Acquire)(object obj, Offer offer, const Request* request) except? NULL

# Finds where an object's memory is without a call of Python. False if that is not known.
ctypedef bint (*FindDevice)(object obj, Offer offer, DLDevice* out) noexcept

# Describes memory of the host that obj itself keeps, without a call of Python and without a block. ``room`` is for 64
# extents and strides. False, without an exception, where obj is to be acquired instead.
ctypedef bint (*Describe)(object obj, Offer offer, Managed* out, int64_t* room) noexcept

# Gives the object that keeps the memory which describe() described, from now on.
ctypedef object (*Keep)(object obj)

cdef class Offer:
    cdef Acquire acquire
    cdef FindDevice find_device             # NULL where Python is to be asked
    cdef Describe describe                  # NULL where the memory is to be acquired
    cdef Keep keep                          # NULL where that keeper is no base for an array
    cdef readonly str protocol              # as refusals and explain() call it
    cdef readonly object facts              # libraries/library.Facts of the type
    # Facts that an acquire asks for. Of a registered source the user says one of the first two, or neither.
    cdef bint unflagged
    cdef bint legacy_writable               # the memory of its legacy capsules, which cannot say it, may be written
    cdef bint copies
    cdef bint forgets
    cdef object element_type
    cdef const DLPackExchangeAPI* api       # of an offer of exchange: the type's table
    cdef bint names_stream                  # … and the facts of these names
    cdef str gradient_free
    cdef unsigned int keywords              # of an offer of dlpack: the keywords that __dlpack__ takes
    cdef bint unordered                     # … and whether it is told to order nothing; then it is asked first
    cdef bint keeps_object                  # … and whether a block needs the object beside the capsule
    cdef bint legacy_read_only              # … and whether memory of its legacy capsules is known to be read-only
    cdef object stream_object               # of dlpack and cuda_array_interface: the fact of this name
    cdef object interface                   # of cuda_array_interface: the fact of this name
    cdef bint exclusive                      # no other protocol may serve this type
    cdef bint optional                      # other offers are asked after it, so it can decline
    cdef object function                    # of a function's offer: it gives an object with a protocol
    cdef object mask_of                     # of a masked array's offer: a function that gives the mask of one
    cdef object is_pinned                   # of buffer: a function of the array: is it in pinned memory; or None
    cdef uint64_t ambiguous                 # of buffer: the rows whose format can also stand for other dtypes, or'ed
    cdef bint is_stream                     # of arrow: the method gives a stream
    cdef object arrow_form                  # … and the fact of this name
    cdef tuple whole_bytes                  # of torch: the dtypes that really are bytes if the export says bytes
    cdef int owned_on                       # of torch: the device type where its borrowed view is wrong, or 0


# What is known of a type, and the first part of its module's name (libraries/library).
cdef object facts_of(object kind)
cdef object library()               # libraries/library itself
cdef object hints()                 # libraries/hints itself
cdef str top_module(object kind)
cdef Offer new_offer(str protocol, Acquire acquire, object facts)
cdef object replicas_of(object array, Offer offer)
cdef int element_row(object obj, Offer offer) except -2
# On failure the block is released.
cdef Managed* with_row(Managed* managed, int row, Offer offer) except NULL
# The error for an array if its library's facts say why it has no memory; otherwise None.
cdef object refusal_by_facts(object array, object facts, str stage)
