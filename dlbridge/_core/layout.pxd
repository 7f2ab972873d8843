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


# Two loops copy a layout, and say whether it is plain: compact in C order, its axes of length 1 too, with elements, and
# far from any limit. settle() has nothing to do for such a layout.

cdef inline bint take_plain(
    int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t* into_shape, int64_t* into_strides,
) noexcept nogil:
    """Copy a layout with strides in elements."""
    cdef int64_t count = 1
    cdef int64_t extent, stride
    cdef bint plain = True
    cdef Py_ssize_t axis = ndim       # no int32, which would be widened for each access
    while axis:
        axis -= 1
        extent, stride = shape[axis], strides[axis]
        into_shape[axis], into_strides[axis] = extent, stride
        if extent < 1 or stride != count or multiply_overflows(count, extent, &count):
            plain = False
    return plain and count <= LARGEST_SPAN >> 8

cdef inline bint take_plain_bytes(
    int32_t ndim, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes, int item_shift,
    int64_t* into_shape, int64_t* into_strides,
) noexcept nogil:
    """Copy a layout with strides in bytes if it is plain; otherwise what was copied so far means nothing."""
    cdef int64_t count = 1
    cdef Py_ssize_t axis = ndim
    while axis:
        axis -= 1
        # Unsigned, since the product may overflow: its size is checked only after the loop.
        if shape[axis] < 1 or strides_bytes[axis] != <int64_t> (<uint64_t> count << item_shift):
            return False
        into_shape[axis], into_strides[axis] = shape[axis], count
        if multiply_overflows(count, shape[axis], &count):
            return False
    return count <= LARGEST_SPAN >> 8

cdef LayoutFault settle(
    int32_t ndim, const int64_t* shape, int64_t* strides, int64_t stride_bytes, int64_t item_bytes,
    int64_t* count, uint32_t* form,
) noexcept nogil
# Gives axes of one element the strides that a compact array would have.
cdef void fill_length_1(int32_t ndim, const int64_t* shape, int64_t* strides, int64_t item_stride) noexcept nogil
cdef Span span_of(
    int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t stride_bytes, int64_t item_bytes,
) noexcept nogil
# Copies a shape, once, since its producer may change it, and fills in the strides of C order.
cdef void take_compact(
    int32_t ndim, const int64_t* shape, int64_t* into_shape, int64_t* into_strides) noexcept nogil
cdef void fill_compact(int32_t ndim, const int64_t* shape, int64_t* strides) noexcept nogil
cdef bint is_dense(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t count) noexcept nogil
cdef bint has_overlap(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t item_stride) noexcept nogil
