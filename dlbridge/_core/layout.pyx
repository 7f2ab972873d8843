"""Shape arithmetic on plain arrays of int64: no objects, no GIL, no exception.

No step is ever taken along an axis of length 1, so its stride reaches no memory. Some libraries read the order of the
axes from such strides (pytorch#163274), and others refuse or miscount unusual ones (numpy#23349, jax#25066). So such a
stride is kept if a library could have chosen it. An array without elements always gets compact strides.
"""

from libc.stdlib cimport llabs
from libc.string cimport memcpy

cdef int64_t LARGEST_LENGTH_1 = LARGEST_SPAN >> 8     # larger strides would overflow where they are multiplied


cdef LayoutFault settle(
    int32_t ndim, const int64_t* shape, int64_t* strides, int64_t stride_bytes, int64_t item_bytes,
    int64_t* count, uint32_t* form,
) noexcept nogil:
    """Count the elements, find what the strides do, and replace strides of length-1 axes that could do harm.

    ``stride_bytes`` is what a stride of 1 means, and ``item_bytes`` the bytes of one element. One pass from the last
    axis to the first also checks that every touched byte can be reached, so span_of() need not check it again.
    """
    cdef int64_t product = 1, nbytes
    cdef Reach reach = Reach(0, 0, 0, False)
    cdef bint empty = False
    cdef int32_t axis
    for axis in range(ndim - 1, -1, -1):
        if shape[axis] > 1:
            # A compact array would have product as its stride here.
            if strides[axis] != product:
                reach.found |= STRIDED
            if multiply_overflows(product, shape[axis], &product):
                return TOO_MANY_ELEMENTS
            extend(&reach, shape[axis], strides[axis])
        elif shape[axis] == 1:
            if not 0 <= strides[axis] <= LARGEST_LENGTH_1:
                strides[axis] = length_1_stride(axis, ndim, shape, strides, item_bytes // stride_bytes)
            elif strides[axis] != length_1_stride(axis, ndim, shape, strides, item_bytes // stride_bytes):
                reach.found |= LENGTH_1
        elif shape[axis] < 0:
            return NEGATIVE_EXTENT
        else:
            # The other extents are still multiplied, because libraries compute strides from them.
            empty = True
    if multiply_overflows(product, item_bytes, &nbytes):
        return TOO_MANY_ELEMENTS
    if empty:
        fill_compact(ndim, shape, strides)
        count[0], form[0] = 0, 0
        return LAYOUT_SOUND         # the strides do not matter, since no step is ever taken
    count[0], form[0] = product, reach.found
    return LAYOUT_SOUND if is_reachable(&reach, stride_bytes, item_bytes) else SPAN_TOO_LARGE


cdef inline int64_t length_1_stride(
    int32_t axis, int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t item_stride,
) noexcept nogil:
    """The stride of an axis of one element that continues the next axis: the next one's extent times its stride."""
    cdef int64_t stride
    if axis == ndim - 1 or multiply_overflows(shape[axis + 1], strides[axis + 1], &stride):
        return item_stride
    return stride


cdef void fill_length_1(int32_t ndim, const int64_t* shape, int64_t* strides, int64_t item_stride) noexcept nogil:
    cdef int32_t axis
    for axis in range(ndim - 1, -1, -1):
        if shape[axis] == 1:
            strides[axis] = length_1_stride(axis, ndim, shape, strides, item_stride)


# How far the elements reach from the first one, in units of the strides.
ctypedef struct Reach:
    int64_t low, high           # <= 0, >= 0
    uint32_t found              # Form, or'ed
    bint too_large              # a sum or a product does not fit


cdef inline void extend(Reach* reach, int64_t extent, int64_t stride) noexcept nogil:
    """Extend the reach by one axis along which steps are taken."""
    cdef int64_t step
    reach.too_large |= multiply_overflows(extent - 1, stride, &step)
    if step > 0:
        reach.too_large |= add_overflows(reach.high, step, &reach.high)
    elif step == 0:
        reach.found |= REPEATED
    else:
        reach.found |= BACKWARD
        reach.too_large |= add_overflows(reach.low, step, &reach.low)


cdef bint is_reachable(const Reach* reach, int64_t stride_bytes, int64_t item_bytes) noexcept nogil:
    """Whether every touched byte is within the span that any memory can have."""
    cdef int64_t low, high
    if reach.too_large or multiply_overflows(reach.low, stride_bytes, &low) or multiply_overflows(
            reach.high, stride_bytes, &high):
        return False
    return not add_overflows(high, item_bytes, &high) and low >= -LARGEST_SPAN and high <= LARGEST_SPAN


cdef Span span_of(
    int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t stride_bytes, int64_t item_bytes,
) noexcept nogil:
    """The bytes that the elements touch. settle() has found the layout sound."""
    cdef Span span
    cdef int64_t step
    cdef int32_t axis
    span.low_bytes, span.high_bytes = 0, item_bytes
    for axis in range(ndim):
        if shape[axis] == 0:
            span.low_bytes = span.high_bytes = 0
            return span
        step = (shape[axis] - 1) * strides[axis] * stride_bytes
        if step < 0:
            span.low_bytes += step
        else:
            span.high_bytes += step
    return span


cdef void take_compact(
    int32_t ndim, const int64_t* shape, int64_t* into_shape, int64_t* into_strides,
) noexcept nogil:
    memcpy(into_shape, shape, ndim * sizeof(int64_t))
    fill_compact(ndim, into_shape, into_strides)


cdef void fill_compact(int32_t ndim, const int64_t* shape, int64_t* strides) noexcept nogil:
    """Fill in the strides of C order. An extent of 0 counts as 1, as in NumPy and torch."""
    cdef int64_t step = 1
    cdef int32_t axis
    for axis in range(ndim - 1, -1, -1):
        strides[axis] = step
        if shape[axis] > 1 and multiply_overflows(step, shape[axis], &step):
            step = 0    # settle() reports it: the product of the extents does not fit either


cdef bint is_dense(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t count) noexcept nogil:
    """Whether a layout is compact in some order of its axes: every place in the span has exactly one element."""
    cdef int64_t expected = 1
    cdef uint64_t seen = 0
    cdef int32_t axis, following
    if count <= 1:
        return True
    while expected < count:
        following = -1
        for axis in range(ndim):
            if shape[axis] > 1 and strides[axis] == expected and not (seen >> axis) & 1:
                following = axis
                break
        if following < 0:
            return False
        seen |= <uint64_t> 1 << following
        expected *= shape[following]
    return True


cdef bint has_overlap(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t item_stride) noexcept nogil:
    """Whether elements share bytes, as those of sliding windows do; strides of 0 do not count.

    True also for some layouts whose axes interlace and leave no byte to two elements. ``item_stride`` is the stride
    of elements that are adjacent.
    """
    cdef int64_t reach = item_stride
    cdef uint64_t seen = 0
    cdef int32_t axis, nearest, _
    for _ in range(ndim):
        nearest = -1
        for axis in range(ndim):
            if shape[axis] > 1 and strides[axis] and not (seen >> axis) & 1 and (
                    nearest < 0 or llabs(strides[axis]) < llabs(strides[nearest])):
                nearest = axis
        if nearest < 0:
            return False
        if llabs(strides[nearest]) < reach:
            return True
        seen |= <uint64_t> 1 << nearest
        reach += (shape[nearest] - 1) * llabs(strides[nearest])
    return False
