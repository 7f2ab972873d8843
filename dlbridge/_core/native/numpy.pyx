"""numpy.ndarray and its subclasses, through NumPy's C API.

Subclasses are taken as ``np.asarray`` takes them: the memory, without what the subclass adds. A mask cannot be left
out so, because then wrong values would pass for right ones.
"""

import numpy as np

cimport numpy

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport (
    PROTOCOL_NUMPY,
    SWAPPED,
    Managed,
    managed_new,
    managed_own_object,
    managed_set_compact,
    managed_set_layout,
    managed_set_row,
)
from dlbridge._core.dtypes cimport find_numpy, get_row, way_out
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer, new_offer
from dlbridge._core.validation cimport managed_checked

from dlbridge.errors import ConversionError, UnsupportedError, refusal

numpy.import_array()


cdef Offer offers(object kind, object facts):
    if not issubclass(kind, np.ndarray):
        return None
    offer = new_offer("numpy", acquire_masked if issubclass(kind, np.ma.MaskedArray) else acquire, facts)
    offer.sole = True           # or a mask would slip past by another protocol
    return offer


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef int row = find_numpy(<numpy.ndarray> obj)
    cdef int flags = numpy.PyArray_FLAGS(<numpy.ndarray> obj)
    cdef Managed* managed
    if row < 0:
        return refuse_dtype(obj)
    managed = managed_new(PROTOCOL_NUMPY, numpy.PyArray_NDIM(<numpy.ndarray> obj))
    managed_set_row(managed, row)
    managed.abi.dl_tensor.data = numpy.PyArray_DATA(<numpy.ndarray> obj)
    if not flags & numpy.NPY_ARRAY_WRITEABLE:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if get_row(row).subbyte:
        # ml_dtypes keeps one element in each byte, the value in the low bits.
        managed.abi.flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
    if numpy.PyArray_ISBYTESWAPPED(<numpy.ndarray> obj):
        managed.marks |= SWAPPED
    managed_own_object(managed, obj)
    # The flag is NumPy's own finding about this very memory, which no Python code can set: nothing is left to check.
    if flags & numpy.NPY_ARRAY_C_CONTIGUOUS and managed_set_compact(
            managed, <const Py_ssize_t*> numpy.PyArray_DIMS(<numpy.ndarray> obj)):
        return managed
    managed_set_layout(
        managed, <const Py_ssize_t*> numpy.PyArray_DIMS(<numpy.ndarray> obj),
        <const Py_ssize_t*> numpy.PyArray_STRIDES(<numpy.ndarray> obj))
    return managed_checked(managed)


cdef Managed* acquire_masked(object obj, Offer offer, const Request* request) except? NULL:
    if obj.mask is not np.ma.nomask:
        raise refusal(UnsupportedError, "numpy", "mask", f"of {type(obj).__name__}",
                      "would be dropped, and masked values would pass for real ones",
                      "pass x.filled(value), or x.data if the mask does not matter")
    return acquire(obj, offer, request)


cdef Managed* refuse_dtype(numpy.ndarray array) except NULL:
    cdef object dtype = array.descr
    raise refusal(ConversionError, "numpy", "dtype", dtype, "has no DLPack type", way_out(dtype.kind))
