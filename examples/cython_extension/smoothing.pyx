# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Signals of any library, smoothed in parallel and without the GIL."""

cimport dlbridge
from cython.parallel cimport prange
from libc.stdint cimport int64_t, uint8_t

ctypedef fused number:
    uint8_t
    float
    double


cdef void smooth(const number* values, int64_t stride, float* out, int64_t count) noexcept nogil:
    """Set each element to the mean of itself and its neighbours. stride counts elements, and can be negative."""
    cdef int64_t index, left, right
    for index in prange(count, schedule="static"):
        left = index - 1 if index else 0
        right = index + 1 if index + 1 < count else index
        out[index] = <float> ((
            <double> values[left * stride] + <double> values[index * stride] + <double> values[right * stride]) / 3)


cdef bint has_kernel(dlbridge.DLDataType dtype):
    return (dtype.code == dlbridge.kDLFloat and dtype.bits in (32, 64)) or (
        dtype.code == dlbridge.kDLUInt and dtype.bits == 8)


cdef void dispatch(const dlbridge.DLTensor* signal, float* out) noexcept nogil:
    """The kernel for a dtype."""
    cdef int64_t count = signal.shape[0]
    cdef int64_t stride = signal.strides[0]
    if signal.dtype.bits == 64:
        smooth(<const double*> signal.data, stride, out, count)
    elif signal.dtype.bits == 32:
        smooth(<const float*> signal.data, stride, out, count)
    else:
        smooth(<const uint8_t*> signal.data, stride, out, count)


def smoothed(signal):
    """The mean of each element and its neighbours, as float32, in an array of the signal's own library.

    Parameters
    ----------
    signal : array of any library, or bytes
        One axis of float64, float32 or uint8, with any stride. It is only read.
    """
    cdef dlbridge.View view
    cdef dlbridge.Want want = dlbridge.want(b"smoothed(signal)", dlbridge.OR_COPY)
    cdef dlbridge.DLManagedTensorVersioned* made
    cdef dlbridge.DLTensor like
    want.ndim = 1
    dlbridge.view(signal, &want, &view)
    try:
        if not has_kernel(view.tensor.dtype):
            raise TypeError("smoothed(signal): is neither of float64 nor of float32 nor of uint8")
        like = view.tensor
        like.data = NULL                # so dlbridge allocates
        like.dtype = dlbridge.dtype(dlbridge.kDLFloat, 32)
        made = dlbridge.make(&like, 0, NULL, NULL)
        with nogil:
            dispatch(&view.tensor, <float*> made.dl_tensor.data)
    finally:
        dlbridge.release(&view)
    return dlbridge.deliver(made, signal)


def total(signal):
    """The sum of float64 of one axis, by a typed memoryview."""
    cdef dlbridge.Want want = dlbridge.want(b"total(signal)", dlbridge.OR_COPY)
    want.dtype = dlbridge.dtype(dlbridge.kDLFloat, 64)
    want.ndim = 1
    cdef const double[:] values = dlbridge.as_tensor(signal, &want)
    cdef double summed = 0
    for index in range(values.shape[0]):
        summed += values[index]
    return summed
