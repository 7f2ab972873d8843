"""numpy.ndarray, through NumPy's C API."""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.atomic cimport add_rows
from dlbridge._core.block cimport (
    BYTE_STRIDES,
    OWNS_BUFFER,
    PROTOCOL_EXCHANGE_API,
    SWAPPED,
    Managed,
    managed_data,
    managed_item_bytes,
    managed_release,
    managed_take_view,
    managed_unwrapped,
)
from dlbridge._core.cache cimport steal
from dlbridge._core.capsule cimport new_capsule
from dlbridge._core.dtypes cimport get_row, numpy_dtype, rows_named
from dlbridge._core.layout cimport LENGTH_1, MAX_NDIM, STRIDED
from dlbridge._core.numpy_api cimport ARRAY_WRITEABLE, array_set_base, import_array_api, new_array
from dlbridge._core.pending cimport raise_pending
from dlbridge._core.sources.buffer cimport HeldBuffer
from dlbridge._core.targets.target cimport Target

from dlbridge._core.dtypes import NAMES
from dlbridge.errors import MissingLibraryError

import_array_api()

cdef const char* OWNER_NAME = "dlbridge.Managed"

# The rows of ml_dtypes' types. complex32 is the only type with a PEP 3118 letter that NumPy lacks.
cdef uint64_t ml_dtypes_rows = rows_named(
    name for row, name in enumerate(NAMES) if get_row(row).format == NULL or name == "complex32")


cdef int prepare(Target target) except -1:
    target.accepts = accepts
    target.deliver = deliver
    target.share = share
    target.adjust = adjust
    return 0


cdef int adjust(Target target) except -1:
    target.asked_rows = ml_dtypes_rows
    return 0


cdef object accepts(const Managed* managed, Target target):
    """Refuse ml_dtypes' types if ml_dtypes is missing, or too old for them."""
    cdef int32_t row = managed.row      # without the declaration it would be an int of Python
    if not (ml_dtypes_rows & target.rows) >> row & 1:
        return None             # a type of NumPy's, or one that the target lacks; the plan deals with that
    missing = None
    try:
        numpy_dtype(row)
    except MissingLibraryError as error:
        missing = error
    if missing is not None:
        return missing
    if not get_row(row).subbyte:
        add_rows(&target.plain_rows, <uint64_t> 1 << <int> row)     # ml_dtypes has it, and need not be asked again
    return None


# As array_over(), for a caller that takes the exception itself.
ctypedef PyObject* (*ArrayOver)(const Managed* memory) noexcept

cdef char[1] nowhere            # NumPy allocates memory if it is given NULL, where empty memory may be


cdef object deliver(Managed* managed, Target target):
    """An ndarray over the memory, whose base keeps the memory alive. It is read-only if the memory is."""
    cdef PyObject* made = (<ArrayOver> array_over)(managed)
    if made == NULL:
        managed_release(managed)
        raise_pending()
    array = steal(made)
    owner = base_over(managed)
    if owner is None:
        owner = new_capsule(managed, managed, OWNER_NAME, _release_owner)
    Py_INCREF(owner)        # SetBaseObject steals it
    array_set_base(array, owner)
    return array


cdef object share(const Managed* memory, object keeper):
    """An ndarray over memory that an object keeps, which becomes its base."""
    array = steal(array_over(memory))
    Py_INCREF(keeper)
    array_set_base(array, keeper)
    return array


cdef PyObject* array_over(const Managed* memory) except NULL:
    """An ndarray without a base."""
    cdef int64_t strides_bytes[MAX_NDIM]
    cdef int64_t* strides = NULL         # NumPy computes the strides of compact arrays itself, in half the time
    cdef object dtype = dtype_of(memory)
    cdef char* data = managed_data(memory)
    cdef int flags = 0 if memory.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY else ARRAY_WRITEABLE
    if memory.marks & (STRIDED | BYTE_STRIDES | LENGTH_1):
        strides = fill_strides(memory, strides_bytes)
    Py_INCREF(dtype)        # NewFromDescr steals it
    return new_array(dtype, memory.abi.dl_tensor.ndim, memory.abi.dl_tensor.shape, strides,
                     data if data != NULL else nowhere, flags)


cdef object base_over(Managed* managed):
    """A smaller base than the block, which is then freed; or None, and the block stays.

    On failure the block is released.
    """
    cdef HeldBuffer held
    # A tensor can be the base. An ndarray cannot: NumPy would take that array's base instead, and a subclass may keep
    # more alive than its base does. An object with an interface cannot either: the user could make it release its
    # memory through the base.
    if managed.protocol == PROTOCOL_EXCHANGE_API:
        return managed_unwrapped(managed)
    if managed.owns != OWNS_BUFFER:
        return None
    try:
        held = HeldBuffer.__new__(HeldBuffer)
    except BaseException:
        managed_release(managed)
        raise
    if not managed_take_view(managed, &held.view):
        return None
    held.exporter = <object> held.view.obj
    return held


cdef object dtype_of(const Managed* memory):
    """The NumPy dtype of a block, in its byte order."""
    dtype = numpy_dtype(memory.row)
    return dtype.newbyteorder() if memory.marks & SWAPPED else dtype


cdef int64_t* fill_strides(const Managed* managed, int64_t* strides_bytes) noexcept nogil:
    cdef int64_t step = 1 if managed.marks & BYTE_STRIDES else managed_item_bytes(managed)
    cdef int32_t axis
    for axis in range(managed.abi.dl_tensor.ndim):
        strides_bytes[axis] = managed.abi.dl_tensor.strides[axis] * step
    return strides_bytes


cdef void _release_owner(object capsule) noexcept:
    managed_release(<Managed*> PyCapsule_GetPointer(capsule, OWNER_NAME))
