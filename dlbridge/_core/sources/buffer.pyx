"""The buffer protocol, PEP 3118."""

cimport cython
from cpython.buffer cimport PyBUF_FULL_RO, PyBuffer_Release
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport (
    PROTOCOL_BUFFER, SWAPPED, Managed, integers, managed_checked, managed_count, managed_nbytes, managed_release,
    managed_set_row, managed_take_buffer, managed_take_bytes,
)
from dlbridge._core.dtypes cimport find_format, find_name, get_row
from dlbridge._core.layout cimport MAX_NDIM
from dlbridge._core.pending cimport raise_pending
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer, hints, new_offer

from dlbridge.errors import REPORT, ConversionError, refusal


cdef extern from "Python.h":
    # cpython.buffer declares that it raises, and a try around it would cost more than the rest of acquire().
    int PyObject_GetBuffer(object exporter, Py_buffer* view, int flags) noexcept


cdef Offer offers(object kind, object facts, str attribute):
    if not has_buffer(kind):
        return None
    offer = new_offer("buffer", acquire, facts)
    offer.is_pinned = None if facts.pinned_memory is None else facts.pinned_memory()
    for name in facts.ambiguous or ():
        offer.ambiguous |= <uint64_t> 1 << find_name(name)
    return offer


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef Py_buffer view
    cdef Managed* managed
    cdef bint swapped
    cdef int row
    if offer.is_pinned is not None and offer.optional and offer.is_pinned(obj):
        return NULL             # __dlpack__ says that the memory is pinned
    if PyObject_GetBuffer(obj, &view, PyBUF_FULL_RO):
        return decline(offer)
    row = find_format(view.format, view.itemsize, &swapped)
    if offer.optional and (row < 0 or offer.ambiguous >> row & 1):
        PyBuffer_Release(&view)
        return NULL             # the next protocol may have a name for it
    if row < 0 or view.suboffsets != NULL or (view.ndim and view.shape == NULL):
        refuse_view(&view, row)
    # The block holds the export until the last consumer releases it. bytearray.extend() raises BufferError meanwhile.
    managed = managed_take_buffer(PROTOCOL_BUFFER, &view, view.ndim)
    managed.abi.dl_tensor.data = view.buf
    managed_set_row(managed, row)
    if view.readonly:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if swapped:
        managed.marks |= SWAPPED
    if not managed_take_bytes(managed, view.shape, view.strides) or view.buf == NULL:
        managed = managed_checked(managed)
    if managed_count(managed) << get_row(row).item_shift != view.len:
        nbytes = managed_nbytes(managed)
        managed_release(managed)
        raise _refused("len", view.len, f"does not match the {nbytes} bytes of its shape")
    return managed


cdef Managed* decline(Offer offer) except? NULL:
    try:
        raise_pending()
    except BufferError:
        if not offer.optional:
            raise
    return NULL


cdef int refuse_view(Py_buffer* view, int row) except -1:
    """Check a view, and release it if that raises an error. Suboffsets that are all negative are no error."""
    try:
        check_view(view, row)
    except BaseException:
        PyBuffer_Release(view)
        raise


cdef int check_view(const Py_buffer* view, int row) except -1:
    cdef int axis
    if not 0 <= view.ndim <= MAX_NDIM:
        return 0                # managed_take_buffer() refuses it; the exporter's arrays are not read for so many axes
    if view.ndim and view.shape == NULL:
        raise _refused("shape", "NULL", f"has no extents for ndim {view.ndim}")
    if row < 0:
        text = (<bytes> view.format).decode("utf-8", "replace") if view.format != NULL else "B"
        raise refusal(ConversionError, "buffer", "format", f"{text!r} of {view.itemsize} bytes", "has no DLPack type",
                      hints().for_buffer(text, view.itemsize))
    for axis in range(view.ndim):
        if view.suboffsets[axis] >= 0:
            raise _refused("suboffsets", integers(<const int64_t*> view.suboffsets, view.ndim, 1),
                           "lead through pointers, which no array library holds")


@cython.auto_pickle(False)
@cython.final
@cython.no_gc_clear             # clearing would drop view.obj without releasing the buffer
@cython.trashcan(True)          # a chain of arrays over buffers of arrays can have any length
cdef class HeldBuffer:
    """An exporter's buffer. It is held until the last array over it is gone."""

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef HeldBuffer held_buffer(object exporter, int flags):
    cdef HeldBuffer held = <HeldBuffer> HeldBuffer.__new__(HeldBuffer)
    if PyObject_GetBuffer(exporter, &held.view, flags):
        raise_pending()
    held.exporter = <object> held.view.obj if <PyObject*> held.view.obj != NULL else exporter
    return held


cdef object _refused(str field, object value, str wrong):
    return refusal(ConversionError, "buffer", field, value, wrong, REPORT)
