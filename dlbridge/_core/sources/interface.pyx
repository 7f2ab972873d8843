"""What ``__array_interface__`` and ``__cuda_array_interface__`` have in common: the dictionary.

Its entries are not trusted: each is read once, checked for its type, and converted before it is used.
"""

from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_AsUnsignedLongLong, PyLong_Check
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM

from dlbridge._core.block cimport (
    PROTOCOL_CUDA_ARRAY_INTERFACE,
    SWAPPED,
    Managed,
    Protocol,
    managed_new,
    managed_set_row,
    managed_take_bytes,
    protocol_name,
)
from dlbridge._core.dtypes cimport find_typestr
from dlbridge._core.layout cimport MAX_NDIM
from dlbridge._core.sources.offer cimport hints

from dlbridge.errors import REPORT, ConversionError, refusal, shown


cdef object refuse_field(Protocol protocol, object field, object value, object wrong, object hint):
    return refusal(ConversionError, protocol_name(protocol), f"'{field}'", shown(value), wrong, hint)


cdef Managed* new_from_interface(Protocol protocol, object shape, object typestr, object strides) except NULL:
    """A block with shape, dtype and strides. It has neither an address nor an owner yet, and is not yet validated."""
    cdef Managed* managed
    cdef Py_ssize_t extents[MAX_NDIM]
    cdef Py_ssize_t strides_bytes[MAX_NDIM]
    cdef bint swapped = False
    cdef int row = read_typestr(protocol, typestr, &swapped)
    cdef Py_ssize_t ndim = read_integers(protocol, "shape", shape, extents)
    if strides is not None and read_integers(protocol, "strides", strides, strides_bytes) != ndim:
        raise refuse_field(protocol, "strides", strides, f"is not a tuple of {ndim} integers, nor None", REPORT)
    managed = managed_new(protocol, ndim)
    managed_set_row(managed, row)
    managed_take_bytes(managed, extents, strides_bytes if strides is not None else NULL)
    if swapped:
        managed.marks |= SWAPPED
    return managed


cdef int read_typestr(Protocol protocol, object typestr, bint* swapped) except -1:
    cdef int row
    if not isinstance(typestr, str):
        raise refuse_field(protocol, "typestr", typestr, "is not a string", REPORT)
    # A subclass of str may give a different answer each time it is asked.
    typestr = typestr if type(typestr) is str else str.__str__(typestr)
    row = find_typestr(typestr, swapped)
    if row < 0:
        raise refuse_field(protocol, "typestr", typestr, "has no DLPack type",
                           "convert it to a type of numbers first" if protocol == PROTOCOL_CUDA_ARRAY_INTERFACE
                           else hints().for_exporter(typestr[1:2], typestr[:1]))
    return row


cdef Py_ssize_t read_integers(Protocol protocol, str field, object given, Py_ssize_t* out) except -1:
    """Read a tuple of integers of 64 bits, and return how many there are. ``out`` has room for MAX_NDIM."""
    cdef tuple values
    cdef PyObject* value
    cdef Py_ssize_t index
    cdef int overflow = 0
    if not isinstance(given, tuple):
        raise refuse_field(protocol, field, given, "is not a tuple", REPORT)
    values = given if type(given) is tuple else tuple(given)
    if len(values) > MAX_NDIM:
        managed_new(protocol, len(values))      # raises the error
    for index in range(len(values)):
        value = PyTuple_GET_ITEM(values, index)
        if not PyLong_Check(<object> value):
            raise refuse_field(protocol, field, values, "has an entry that is no integer", REPORT)
        out[index] = PyLong_AsLongLongAndOverflow(<object> value, &overflow)
        if overflow:
            raise refuse_field(protocol, field, values, "has an entry beyond 64 bits", REPORT)
    return len(values)


cdef int read_address(Protocol protocol, object data, void** address, bint* read_only) except -1:
    """Read the pair (address, read-only)."""
    if not isinstance(data, tuple) or len(<tuple> data) != 2 or not PyLong_Check((<tuple> data)[0]):
        raise refuse_field(protocol, "data", data, "is not a pair (address, read-only)", REPORT)
    try:
        address[0] = <void*> PyLong_AsUnsignedLongLong((<tuple> data)[0])
    except OverflowError:
        raise refuse_field(protocol, "data", data, "is no address of 64 bits", REPORT) from None
    read_only[0] = (<tuple> data)[1]
