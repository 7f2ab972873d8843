"""numpy.ndarray and its subclasses, through NumPy's C API.

Subclasses are taken as ``np.asarray`` takes them: as memory, without what the subclass adds. A mask cannot be left out
in this way, because wrong values would then pass for right ones.
"""

import numpy as np


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
from dlbridge._core.dtypes cimport find_numpy, get_row, way_out_of_kind
from dlbridge._core.numpy_api cimport (
    ARRAY_C_CONTIGUOUS,
    ARRAY_WRITEABLE,
    array_data,
    array_flags,
    array_is_swapped,
    array_ndim,
    array_shape,
    array_strides,
    array_type,
)
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer, new_offer
from dlbridge._core.validation cimport managed_checked

from dlbridge.errors import ConversionError, UnsupportedError, refusal


cdef Offer offers(object kind, object facts):
    if not issubclass(kind, np.ndarray):
        return None
    offer = new_offer("numpy", acquire_masked if issubclass(kind, np.ma.MaskedArray) else acquire, facts)
    offer.sole = True           # another protocol would leave out the mask
    return offer


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef int row = find_numpy(array_type(obj), obj)
    cdef int flags = array_flags(obj)
    cdef Managed* managed
    if row < 0:
        return refuse_dtype(obj)
    managed = managed_new(PROTOCOL_NUMPY, array_ndim(obj))
    managed_set_row(managed, row)
    managed.abi.dl_tensor.data = array_data(obj)
    if not flags & ARRAY_WRITEABLE:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if get_row(row).subbyte:
        # ml_dtypes keeps one element in each byte, with the value in the low bits.
        managed.abi.flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
    if array_is_swapped(obj):
        managed.marks |= SWAPPED
    managed_own_object(managed, obj)
    # NumPy itself finds this flag from the layout, and no Python code can set it, so nothing is left to check.
    if flags & ARRAY_C_CONTIGUOUS and managed_set_compact(managed, array_shape(obj), array_strides(obj)):
        return managed
    managed_set_layout(managed, array_shape(obj), array_strides(obj))
    return managed_checked(managed)


cdef Managed* acquire_masked(object obj, Offer offer, const Request* request) except? NULL:
    if obj.mask is not np.ma.nomask:
        raise refusal(UnsupportedError, "numpy", "mask", f"of {type(obj).__name__}",
                      "would be dropped, and masked values would pass for real ones",
                      "pass x.filled(value), or x.data if the mask does not matter")
    return acquire(obj, offer, request)


cdef Managed* refuse_dtype(object array) except NULL:
    dtype = array.dtype
    raise refusal(ConversionError, "numpy", "dtype", dtype, "has no DLPack type", way_out_of_kind(dtype.kind))
