"""Shape arithmetic on plain arrays of int64: no objects, no GIL, no exception."""

from libc.stdint cimport int32_t, int64_t


cdef extern from *:
    """
    /* GCC's and Clang's checked arithmetic: true where the exact result does not fit into int64. */
    #define dlbridge_multiply(a, b, out) __builtin_mul_overflow((int64_t) (a), (int64_t) (b), (int64_t *) (out))
    #define dlbridge_add(a, b, out) __builtin_add_overflow((int64_t) (a), (int64_t) (b), (int64_t *) (out))
    """
    const int64_t LARGEST_SPAN "((int64_t) 1 << 62)"    # the sum of two still fits
    bint multiply_overflows "dlbridge_multiply"(int64_t a, int64_t b, int64_t* out) noexcept nogil
    bint add_overflows "dlbridge_add"(int64_t a, int64_t b, int64_t* out) noexcept nogil


cdef enum LayoutFault:
    LAYOUT_SOUND = 0
    NEGATIVE_EXTENT
    TOO_MANY_ELEMENTS
    SPAN_TOO_LARGE


ctypedef struct Span:
    int64_t low_bytes       # of the first touched byte, relative to the first element: <= 0
    int64_t high_bytes      # one past the last touched byte
    int64_t count           # elements


cdef LayoutFault measure(
    int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t stride_bytes, int64_t item_bytes, Span* out,
) noexcept nogil
cdef void fill_compact(int32_t ndim, const int64_t* shape, int64_t* strides) noexcept nogil
cdef void settle_idle_axes(
    int32_t ndim, const int64_t* shape, int64_t* strides, int64_t count, int64_t unit,
) noexcept nogil
cdef bint is_compact(int32_t ndim, const int64_t* shape, const int64_t* strides) noexcept nogil
cdef bint is_dense(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t count) noexcept nogil
cdef bint has_negative(int32_t ndim, const int64_t* strides) noexcept nogil
cdef bint has_zero(int32_t ndim, const int64_t* shape, const int64_t* strides) noexcept nogil
