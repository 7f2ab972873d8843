"""Pickles of memory: its bytes as one flat block, and a block over bytes that were received.

A pickle has the touched bytes, from the first to the last, and the strides. Of memory with holes it has a compact copy,
so that it never has more bytes than the elements.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport (
    OWNS_BASE,
    PROTOCOL_DLBRIDGE,
    Managed,
    managed_checked,
    managed_count,
    managed_data,
    managed_nbytes,
    managed_new,
    managed_own,
    managed_release,
    managed_set_row,
    managed_shape,
    managed_span,
    managed_take_buffer,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams, is_host
from dlbridge._core.dtypes cimport NO_ROW, find_name
from dlbridge._core.layout cimport Span
from dlbridge._core.place cimport COPY, FETCH, place, shared_in_order

from dlbridge.errors import ConversionError, refusal


cdef Managed* picklable(Managed* base) except NULL:
    cdef Span span = managed_span(base)
    cdef int32_t device_type = base.abi.dl_tensor.device.device_type
    cdef int32_t steps = 0 if is_host(device_type) else <int32_t> FETCH
    cdef Managed* managed = shared_in_order(base)
    if span.high_bytes - span.low_bytes > managed_nbytes(base):
        steps |= COPY
    try:
        if has_streams(device_type) and is_host(device_type):
            device_operations().await_producer(managed)     # the bytes are about to be read
    except BaseException:
        managed_release(managed)
        raise
    return place(managed, steps, NULL)


cdef Managed* flattened(Managed* managed, int64_t* offset_bytes) except NULL:
    cdef Span span = managed_span(managed)
    cdef Managed* flat
    if not managed_count(managed):
        span.low_bytes = span.high_bytes = 0
    try:
        flat = managed_new(PROTOCOL_DLBRIDGE, 1)
    except BaseException:
        managed_release(managed)
        raise
    offset_bytes[0] = -span.low_bytes
    managed_own(flat, OWNS_BASE, managed)
    managed_set_row(flat, find_name("uint8"))
    flat.abi.dl_tensor.data = managed_data(managed) + span.low_bytes
    flat.abi.dl_tensor.shape[0] = span.high_bytes - span.low_bytes
    flat.abi.dl_tensor.strides[0] = 1
    flat.abi.flags = managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY
    return managed_checked(flat)


cdef Managed* unpickled(
    object received, int64_t offset_bytes, tuple shape, tuple strides, str dtype, bint padded,
) except NULL:
    cdef Py_buffer view
    cdef Managed* managed
    cdef Py_ssize_t length
    cdef int row = find_name(dtype)
    cdef int32_t axis
    if row == NO_ROW or len(strides) != len(shape):
        raise damaged("strides", strides, f"do not fit shape {shape} of {dtype}")
    PyObject_GetBuffer(received, &view, PyBUF_SIMPLE)
    length = view.len
    managed = managed_take_buffer(PROTOCOL_DLBRIDGE, &view, len(shape))
    try:
        if not 0 <= offset_bytes <= length:
            raise damaged("offset", offset_bytes, f"is outside of {length} bytes")
        managed_set_row(managed, row)
        for axis in range(managed.abi.dl_tensor.ndim):
            managed.abi.dl_tensor.shape[axis], managed.abi.dl_tensor.strides[axis] = shape[axis], strides[axis]
    except BaseException:
        managed_release(managed)
        raise
    managed.abi.dl_tensor.data = <char*> view.buf + offset_bytes
    managed.abi.flags = (DLPACK_FLAG_BITMASK_READ_ONLY if view.readonly else 0) | (
        DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED if padded else 0)
    managed = managed_checked(managed)
    check_length(managed, offset_bytes, length)
    return managed


cdef int check_length(Managed* managed, int64_t offset_bytes, int64_t length) except -1:
    """Refuse elements that are not among the bytes; the block is then released."""
    cdef Span span = managed_span(managed)
    if not managed_count(managed) or (
            offset_bytes + span.low_bytes >= 0 and offset_bytes + span.high_bytes <= length):
        return 0
    shape = managed_shape(managed)
    managed_release(managed)
    raise damaged("shape", shape, f"touches bytes {offset_bytes + span.low_bytes} to {offset_bytes + span.high_bytes} "
                  f"of {length}")


cdef object damaged(str field, object value, str wrong):
    return refusal(ConversionError, "pickle", field, value, wrong, "the pickle is damaged: make it again")
