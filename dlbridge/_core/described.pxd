"""Memory as a user describes it: a dtype, and a shape."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.block cimport Managed
from dlbridge._core.layout cimport MAX_NDIM
from dlbridge._core.request cimport Request

cdef struct Description:
    int row
    bint swapped                    # whether its bytes are in the other order
    int32_t ndim
    int64_t[MAX_NDIM] extents       # one may be left out

# The row of a dtype as convert() and from_pointer() take it. swapped: whether its bytes are in the other order.
cdef int row_named(str stage, object dtype, bint* swapped) except -2
# Reads the numbers of a shape or of strides, up to 64; how many there are.
cdef int32_t read_numbers(str stage, str field, object values, int64_t* out) except -1
# Reads what convert() was given; None leaves it to the bytes. It may call anything, so it comes before the memory.
cdef int read_description(object dtype, object shape, Description* described) except -1
# Acquires src; bytes may be seen with another dtype or shape.
cdef Managed* acquire_seen(tuple offers, object src, object dtype, object shape, const Request* request) except NULL
# The same bytes with another dtype or shape. Steals managed, also when it fails.
cdef Managed* seen_as(Managed* managed, object dtype, object shape, Description* described) except NULL
