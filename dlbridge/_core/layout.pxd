"""Shape arithmetic on plain arrays of int64: no objects, no GIL, no exception."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "dlbridge/_core/compiler.h":
    const int64_t LARGEST_SPAN "((int64_t) 1 << 62)"    # the sum of two still fits
    bint multiply_overflows "dlbridge_multiply"(int64_t a, int64_t b, int64_t* out) noexcept nogil
    bint add_overflows "dlbridge_add"(int64_t a, int64_t b, int64_t* out) noexcept nogil


cdef enum:
    MAX_NDIM = 64               # the limit of NumPy and torch

cdef enum LayoutFault:
    LAYOUT_SOUND = 0
    NEGATIVE_EXTENT
    TOO_MANY_ELEMENTS
    SPAN_TOO_LARGE


# What the strides do. These are marks of a block, beside Mark of block.pxd. All but LENGTH_1 are about axes along
# which steps are taken.
cdef enum Form:
    BACKWARD = 16           # a stride is negative
    REPEATED = 32           # a stride is zero
    STRIDED = 64            # the strides are not those of a compact array in C order
    LENGTH_1 = 128          # an axis of one element has another stride than in C order, as torch's formats do


ctypedef struct Span:
    int64_t low_bytes       # of the first touched byte, relative to the first element: <= 0
    int64_t high_bytes      # one past the last touched byte


cdef inline bint is_plain(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t* count) noexcept nogil:
    """Whether a layout is compact in C order, its axes of length 1 too, and far from any limit. Counts the elements.

    settle() has nothing to do for such a layout.
    """
    cdef int64_t product = 1
    cdef int32_t axis = ndim
    while axis:
        axis -= 1
        if shape[axis] < 1 or strides[axis] != product or multiply_overflows(product, shape[axis], &product):
            return False
    count[0] = product
    return product <= LARGEST_SPAN >> 8

cdef LayoutFault settle(
    int32_t ndim, const int64_t* shape, int64_t* strides, int64_t stride_bytes, int64_t item_bytes,
    int64_t* count, uint32_t* form,
) noexcept nogil
# Gives axes of one element the strides that a compact array would have.
cdef void fill_length_1(int32_t ndim, const int64_t* shape, int64_t* strides, int64_t item_stride) noexcept nogil
cdef Span span_of(
    int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t stride_bytes, int64_t item_bytes,
) noexcept nogil
cdef void fill_compact(int32_t ndim, const int64_t* shape, int64_t* strides) noexcept nogil
cdef bint is_dense(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t count) noexcept nogil
cdef bint has_overlap(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t item_stride) noexcept nogil
