"""numpy.ndarray and its subclasses, through NumPy's C API.

Subclasses are taken as ``np.asarray`` takes them: the memory, without what the subclass adds. A mask cannot be left
out so, because then wrong values would pass for right ones.
"""

import numpy as np

cimport numpy
from libc.string cimport memcpy

from dlbridge.abi cimport DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge.dtypes cimport find_numpy, get_row, way_out
from dlbridge.managed cimport (
    PROTOCOL_NUMPY,
    SWAPPED,
    Managed,
    managed_checked,
    managed_new,
    managed_own_object,
    managed_set_byte_strides,
    managed_set_row,
)
from dlbridge.request cimport Request
from dlbridge.sources.offer cimport Offer, new_offer

from dlbridge.errors import ConversionError, UnsupportedError, refusal

numpy.import_array()


cdef Offer offers(object kind):
    if kind is np.ndarray:
        return new_offer("numpy", acquire)
    if issubclass(kind, np.ma.MaskedArray):
        return new_offer("numpy", acquire_masked)
    if issubclass(kind, np.ndarray):
        return new_offer("numpy", acquire)
    return None


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef numpy.ndarray array = <numpy.ndarray> obj
    cdef numpy.dtype dtype = array.descr
    cdef int row = find_numpy(dtype)
    cdef int ndim = numpy.PyArray_NDIM(array)
    cdef Managed* managed
    if row < 0:
        raise _refused(dtype)
    managed = managed_new(PROTOCOL_NUMPY, ndim)
    managed.abi.dl_tensor.data = numpy.PyArray_DATA(array)
    managed_set_row(managed, row)
    memcpy(managed.abi.dl_tensor.shape, numpy.PyArray_DIMS(array), ndim * sizeof(numpy.npy_intp))
    managed_set_byte_strides(managed, <const Py_ssize_t*> numpy.PyArray_STRIDES(array))
    if not numpy.PyArray_ISWRITEABLE(array):
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if get_row(row).subbyte:
        # ml_dtypes keeps one element in each byte, the value in the low bits.
        managed.abi.flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
    if numpy.PyArray_ISBYTESWAPPED(array):
        managed.marks |= SWAPPED
    managed_own_object(managed, array)
    return managed_checked(managed)


cdef Managed* acquire_masked(object obj, Offer offer, const Request* request) except? NULL:
    if obj.mask is not np.ma.nomask:
        raise refusal(UnsupportedError, "numpy", "mask", f"of {type(obj).__name__}",
                      "would be dropped, and masked values would pass for real ones",
                      "pass x.filled(value), or x.data if the mask does not matter")
    return acquire(obj, offer, request)


def _refused(dtype):
    return refusal(ConversionError, "numpy", "dtype", dtype, "has no DLPack type", way_out(dtype.kind))
