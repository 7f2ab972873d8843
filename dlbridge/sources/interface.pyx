"""What ``__array_interface__`` and ``__cuda_array_interface__`` have in common: the dictionary.

Nothing in it is trusted: every entry is read once, checked for its type, and converted before anything is built on it.
"""

from cpython.long cimport PyLong_AsLongLong, PyLong_AsUnsignedLongLong, PyLong_Check
from libc.stdint cimport int64_t, uint64_t

from dlbridge.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge.dtypes cimport find_typestr, way_out
from dlbridge.layout cimport fill_compact
from dlbridge.managed cimport (
    MAX_NDIM,
    SWAPPED,
    Managed,
    Protocol,
    managed_new,
    managed_release,
    managed_set_byte_strides,
    managed_set_row,
    protocol_name,
)

from dlbridge.errors import REPORT, ConversionError, refusal


cdef object refuse_field(Protocol protocol, object field, object value, object wrong, object remedy):
    return refusal(ConversionError, protocol_name(protocol), f"'{field}'", repr(value), wrong, remedy)


cdef Managed* new_from_interface(Protocol protocol, object shape, object typestr, object strides) except NULL:
    """An unowned block with shape, dtype and strides; neither address nor owner yet, and not validated."""
    cdef Managed* managed
    cdef Py_ssize_t strides_bytes[MAX_NDIM]
    cdef bint swapped = False
    cdef int axis, row
    if not isinstance(shape, tuple):
        raise refuse_field(protocol, "shape", shape, "is not a tuple", REPORT)
    # A subclass may say another thing each time it is asked.
    shape = tuple(shape)
    strides = tuple(strides) if isinstance(strides, tuple) else strides
    if not isinstance(typestr, str):
        raise refuse_field(protocol, "typestr", typestr, "is not a string", REPORT)
    typestr = str.__str__(typestr)
    row = find_typestr(typestr, &swapped)
    if row < 0:
        raise refuse_field(protocol, "typestr", typestr, "has no DLPack type", way_out(typestr[1:2]))
    if strides is not None and (not isinstance(strides, tuple) or len(strides) != len(shape)):
        raise refuse_field(protocol, "strides", strides, f"is not a tuple of {len(shape)} integers, nor None",
                           REPORT)
    managed = managed_new(protocol, len(shape))
    try:
        for axis in range(len(shape)):
            managed.abi.dl_tensor.shape[axis] = _integer(protocol, "shape", shape, axis)
        managed_set_row(managed, row)
        if strides is None:
            fill_compact(managed.abi.dl_tensor.ndim, managed.abi.dl_tensor.shape, managed.abi.dl_tensor.strides)
        else:
            for axis in range(len(shape)):
                strides_bytes[axis] = _integer(protocol, "strides", strides, axis)
            managed_set_byte_strides(managed, strides_bytes)
    except BaseException:
        managed_release(managed)
        raise
    if swapped:
        managed.marks |= SWAPPED
    return managed


cdef int64_t _integer(Protocol protocol, str field, object values, int index) except? -1:
    value = values[index]
    if not PyLong_Check(value):
        raise refuse_field(protocol, field, values, "has an entry that is no integer", REPORT)
    try:
        return PyLong_AsLongLong(value)
    except OverflowError:
        raise refuse_field(protocol, field, values, "has an entry beyond 64 bits", REPORT) from None


cdef int set_address(Managed* managed, object data) except -1:
    """Take the pair (address, read-only)."""
    cdef uint64_t address
    if not isinstance(data, tuple) or len(data) != 2 or not PyLong_Check(data[0]):
        raise refuse_field(managed.protocol, "data", data, "is not a pair (address, read-only)",
                           REPORT)
    try:
        address = PyLong_AsUnsignedLongLong(data[0])
    except OverflowError:
        raise refuse_field(managed.protocol, "data", data, "is no address of 64 bits",
                           REPORT) from None
    managed.abi.dl_tensor.data = <void*> address
    if data[1]:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    return 0
