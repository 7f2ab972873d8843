"""The buffer protocol, PEP 3118."""

from cpython.buffer cimport PyBUF_FULL_RO, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from dlbridge.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge.dtypes cimport find_format, way_out
from dlbridge.layout cimport fill_compact
from dlbridge.managed cimport (
    PROTOCOL_BUFFER,
    SWAPPED,
    Managed,
    managed_checked,
    managed_nbytes,
    managed_new,
    managed_own_buffer,
    managed_release,
    managed_set_byte_strides,
    managed_set_row,
)
from dlbridge.request cimport Request
from dlbridge.sources.offer cimport Offer, new_offer

from dlbridge.errors import REPORT, ConversionError, refusal


cdef extern from *:
    """
    #define dlbridge_has_buffer(type) \\
        (((PyTypeObject *) (type))->tp_as_buffer && ((PyTypeObject *) (type))->tp_as_buffer->bf_getbuffer)
    """
    bint has_buffer "dlbridge_has_buffer"(object kind) noexcept

# PEP 3118 letters that no DLPack type stands for, as typestr kinds: the way out is the same.
cdef dict KINDS = {"g": "f", "O": "O", "T": "V", "s": "S", "w": "U", "u": "U", "x": "V"}


cdef Offer offers(object kind):
    return new_offer("buffer", acquire) if has_buffer(kind) else None


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef Py_buffer view
    cdef Managed* managed
    try:
        PyObject_GetBuffer(obj, &view, PyBUF_FULL_RO)
    except BufferError:
        if offer.optional:
            return NULL
        raise
    try:
        managed = describe_view(&view)
    except BaseException:
        PyBuffer_Release(&view)
        raise
    # The export is held until the last consumer is gone: bytearray.extend() raises BufferError meanwhile.
    managed_own_buffer(managed, &view)
    managed = managed_checked(managed)
    if managed_nbytes(managed) != view.len:
        nbytes = managed_nbytes(managed)
        managed_release(managed)
        raise _refused("len", view.len, f"does not match the {nbytes} bytes of its shape")
    return managed


cdef Managed* describe_view(Py_buffer* view) except NULL:
    cdef Managed* managed
    cdef bint swapped
    cdef int row
    if view.suboffsets != NULL:
        for axis in range(view.ndim):
            if view.suboffsets[axis] >= 0:
                raise refusal(ConversionError, "buffer", "suboffsets", view.suboffsets[axis],
                              "lead through pointers, which no array library holds", "pass its rows one by one")
    row = find_format(view.format, view.itemsize, &swapped)
    if row < 0:
        text = (<bytes> view.format).decode("utf-8", "replace") if view.format != NULL else "B"
        raise refusal(ConversionError, "buffer", "format", f"{text!r} of {view.itemsize} bytes", "has no DLPack type",
                      way_out(KINDS.get(text.lstrip("@=<>!0123456789")[:1])))
    managed = managed_new(PROTOCOL_BUFFER, view.ndim, sizeof(Py_buffer))
    managed.abi.dl_tensor.data = view.buf
    managed_set_row(managed, row)
    if view.ndim and view.shape == NULL:
        managed_release(managed)
        raise _refused("shape", "NULL", f"has no extents for ndim {view.ndim}")
    memcpy(managed.abi.dl_tensor.shape, view.shape, view.ndim * sizeof(int64_t))
    if view.strides != NULL:
        managed_set_byte_strides(managed, view.strides)
    else:
        fill_compact(view.ndim, managed.abi.dl_tensor.shape, managed.abi.dl_tensor.strides)
    if view.readonly:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if swapped:
        managed.marks |= SWAPPED
    return managed


cdef object _refused(str field, object value, str wrong):
    return refusal(ConversionError, "buffer", field, value, wrong, REPORT)
