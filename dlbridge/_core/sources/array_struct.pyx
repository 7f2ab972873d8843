"""``__array_struct__``: NumPy's C structure in a capsule without a name."""

from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetPointer, PyCapsule_IsValid

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport (
    PROTOCOL_ARRAY_STRUCT,
    SWAPPED,
    Managed,
    managed_checked,
    managed_new,
    managed_own_object,
    managed_set_row,
    managed_take_bytes,
)
from dlbridge._core.dtypes cimport find_sized
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer, hints, new_offer

from dlbridge.errors import REPORT, ConversionError, refusal


cdef Offer offers(object holder, object facts, str attribute):
    return new_offer("array_struct", acquire, facts)


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    try:
        capsule = obj.__array_struct__
    except AttributeError:
        return NULL
    try:
        return block_of(obj, capsule)
    except BaseException:
        # The capsule is released while the error is caught. Its destructor may be Python code, which would lose a
        # pending error.
        capsule = None
        raise


cdef Managed* block_of(object obj, object capsule) except NULL:
    cdef PyArrayInterface* interface
    cdef Managed* managed
    cdef int row
    if not PyCapsule_CheckExact(capsule) or not PyCapsule_IsValid(capsule, NULL):
        raise _refused("__array_struct__", type(capsule).__qualname__, "is not a capsule without a name")
    interface = <PyArrayInterface*> PyCapsule_GetPointer(capsule, NULL)
    if interface.two != ARRAY_STRUCT_VERSION:
        raise _refused("two", interface.two, "is not 2, so this is another structure")
    row = find_sized(interface.typekind, interface.itemsize)
    if row < 0:
        kind = chr(<unsigned char> interface.typekind)
        raise refusal(ConversionError, "array_struct", "typekind", f"{kind!r} of {interface.itemsize} bytes",
                      "has no DLPack type", hints().for_struct(kind, interface.flags & ARRAY_STRUCT_NOTSWAPPED))
    if interface.nd and interface.shape == NULL:
        raise _refused("shape", "NULL", f"has no extents for nd {interface.nd}")
    owner = (obj, capsule)      # made first: if that fails, there is no block yet that could be lost
    managed = managed_new(PROTOCOL_ARRAY_STRUCT, interface.nd)
    managed.abi.dl_tensor.data = interface.data
    managed_set_row(managed, row)
    managed_take_bytes(managed, <const Py_ssize_t*> interface.shape, <const Py_ssize_t*> interface.strides)
    if not interface.flags & ARRAY_STRUCT_WRITEABLE:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if not interface.flags & ARRAY_STRUCT_NOTSWAPPED and interface.itemsize > 1:
        managed.marks |= SWAPPED
    managed_own_object(managed, owner)
    return managed_checked(managed)


cdef object _refused(str field, object value, str wrong):
    return refusal(ConversionError, "array_struct", field, value, wrong, REPORT)
