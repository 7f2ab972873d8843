"""Shape arithmetic on plain arrays of int64: no objects, no GIL, no exception.

An axis is idle when no step along it is ever taken: its extent is 0 or 1, or the array has no elements. What its stride
says has no meaning, and several libraries refuse or miscount such strides all the same (numpy#23349, jax#25066).
"""


cdef LayoutFault measure(
    int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t stride_bytes, int64_t item_bytes, Span* out,
) noexcept nogil:
    """Count the elements and find the bytes they touch; ``stride_bytes`` is what a stride of one means."""
    cdef int64_t product = 1, reach = 0, low = 0, step
    cdef bint empty = False
    cdef int32_t axis
    for axis in range(ndim):
        if shape[axis] < 0:
            return NEGATIVE_EXTENT
        if shape[axis] == 0:
            # The other extents are still multiplied: libraries compute strides from them.
            empty = True
        elif shape[axis] > 1:
            if multiply_overflows(product, shape[axis], &product):
                return TOO_MANY_ELEMENTS
            if multiply_overflows(shape[axis] - 1, strides[axis], &step):
                return SPAN_TOO_LARGE
            # -step overflows only for the minimum of int64, whose sum with anything below does too.
            if step < 0:
                if add_overflows(low, step, &low):
                    return SPAN_TOO_LARGE
            elif add_overflows(reach, step, &reach):
                return SPAN_TOO_LARGE
    if multiply_overflows(product, item_bytes, &step):
        return TOO_MANY_ELEMENTS
    if multiply_overflows(low, stride_bytes, &low) or multiply_overflows(reach, stride_bytes, &reach):
        return SPAN_TOO_LARGE
    if add_overflows(reach, item_bytes, &reach) or low < -LARGEST_SPAN or reach > LARGEST_SPAN:
        return SPAN_TOO_LARGE
    out.count = 0 if empty else product
    out.low_bytes = 0 if empty else low
    out.high_bytes = 0 if empty else reach
    return LAYOUT_SOUND


cdef void fill_compact(int32_t ndim, const int64_t* shape, int64_t* strides) noexcept nogil:
    """C order; an extent of 0 counts as 1, as NumPy and torch have it."""
    cdef int64_t step = 1
    cdef int32_t axis
    for axis in range(ndim - 1, -1, -1):
        strides[axis] = step
        if shape[axis] > 1 and multiply_overflows(step, shape[axis], &step):
            step = 0    # measure() reports it: the product of the extents does not fit either


cdef void settle_idle_axes(
    int32_t ndim, const int64_t* shape, int64_t* strides, int64_t count, int64_t unit,
) noexcept nogil:
    """Give idle axes the strides that a compact array would have there; a stride of one element is ``unit``."""
    cdef int32_t axis
    if count == 0:
        fill_compact(ndim, shape, strides)
        return
    for axis in range(ndim - 1, -1, -1):
        if shape[axis] != 1:
            continue
        if axis == ndim - 1 or multiply_overflows(shape[axis + 1], strides[axis + 1], &strides[axis]):
            strides[axis] = unit


cdef bint is_compact(int32_t ndim, const int64_t* shape, const int64_t* strides) noexcept nogil:
    """C order without holes."""
    cdef int64_t expected = 1
    cdef int32_t axis
    for axis in range(ndim - 1, -1, -1):
        if shape[axis] == 0:
            return True
    for axis in range(ndim - 1, -1, -1):
        if shape[axis] > 1:
            if strides[axis] != expected:
                return False
            expected *= shape[axis]
    return True


cdef bint is_dense(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t count) noexcept nogil:
    """Compact in some order of the axes: every element's place is used exactly once."""
    cdef int64_t expected = 1, seen = 0
    cdef int32_t axis, found
    if count <= 1:
        return True
    while expected < count:
        found = -1
        for axis in range(ndim):
            if shape[axis] > 1 and strides[axis] == expected and not (seen >> axis) & 1:
                found = axis
                break
        if found < 0:
            return False
        seen |= <int64_t> 1 << found
        expected *= shape[found]
    return True


cdef bint has_negative(int32_t ndim, const int64_t* strides) noexcept nogil:
    cdef int32_t axis
    for axis in range(ndim):
        if strides[axis] < 0:
            return True
    return False


cdef bint has_zero(int32_t ndim, const int64_t* shape, const int64_t* strides) noexcept nogil:
    cdef int32_t axis
    for axis in range(ndim):
        if strides[axis] == 0 and shape[axis] > 1:
            return True
    return False
