"""numpy.ndarray and its subclasses, through NumPy's C API.

Subclasses are taken as ``np.asarray`` takes them: as memory, without what the subclass adds. A mask cannot be left out
in this way, because wrong values would then pass for right ones.
"""

from cpython.buffer cimport PyBUF_FULL_RO
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice,
    kDLCPU,
)
from dlbridge._core.block cimport (
    BYTE_STRIDES, PROTOCOL_NUMPY, SWAPPED, Managed, find_fault, managed_begin, managed_checked, managed_data,
    managed_item_bytes, managed_keep_export, managed_new, managed_own_object, managed_release, managed_set_row,
    managed_take_bytes,
)
from dlbridge._core.dtypes cimport NO_ROW, NUMPY_TYPES, by_numpy_type, find_numpy, get_row, numpy_dtype
from dlbridge._core.layout cimport LENGTH_1, MAX_NDIM, STRIDED
from dlbridge._core.numpy_api cimport (
    ARRAY_WRITEABLE, array_base, array_data, array_flags, array_is_swapped, array_ndim, array_of_scalar, array_shape,
    array_strides, array_type, import_array_api, new_array,
)
from dlbridge._core.request cimport COPY_NEVER, Request
from dlbridge._core.sources.buffer cimport counts_exports, held_buffer
from dlbridge._core.sources.offer cimport Offer, facts_of, hints, new_offer

import numpy as np

from dlbridge.errors import ConversionError, CopyRequiredError, UnsupportedError, full_name, refusal, shown


cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(PyObject* obj) noexcept

import_array_api()              # for PyArray_FromScalar and PyArray_NewFromDescr; all else are macros
cdef type ndarray = np.ndarray
# What numpy.lib.stride_tricks puts between an array and its base (seen in 2.4.6).
cdef type between = type(np.lib.stride_tricks.as_strided(np.zeros(1)).base)


cdef Offer offers(object kind, object facts, str attribute):
    if issubclass(kind, np.generic):
        offer = new_offer("numpy", acquire_scalar, facts)
        offer.exclusive = True
        return offer
    if not issubclass(kind, np.ndarray):
        return None
    offer = new_offer("numpy", acquire, facts)
    offer.exclusive = True           # another protocol would leave out the mask
    offer.find_device = device_of_array
    find_mask = facts.masked
    if find_mask is None:
        offer.describe = describe
    else:
        offer.acquire, offer.mask_of = acquire_masked, find_mask()
    return offer


cdef bint device_of_array(object obj, Offer offer, DLDevice* out) noexcept:
    out[0] = DLDevice(kDLCPU, 0)
    return True


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef int row = find_numpy(array_type(obj), obj)
    cdef Managed* managed
    cdef bint plain
    if row < 0:
        return refuse_dtype(obj)
    managed = managed_new(PROTOCOL_NUMPY, array_ndim(obj))
    if get_row(row).subbyte:
        # ml_dtypes keeps one element in each byte, with the value in the low bits.
        managed.abi.flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
    plain = fill(managed, obj, row)
    managed_own_object(managed, obj)
    if array_base(obj) != NULL:
        hold_base(managed, obj)
    return managed if plain else managed_checked(managed)


cdef inline bint fill(Managed* managed, object array, int row) noexcept:
    """Take all that is known of an array. If True, nothing is left to check."""
    managed_set_row(managed, row)
    managed.abi.dl_tensor.data = array_data(array)
    if not array_flags(array) & ARRAY_WRITEABLE:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if array_is_swapped(array):
        managed.marks |= SWAPPED
    return managed_take_bytes(managed, array_shape(array), array_strides(array))


cdef Managed* acquire_scalar(object obj, Offer offer, const Request* request) except? NULL:
    """Make a block of a NumPy scalar, by an array without axes, which is a copy; scalars of ml_dtypes have one, too.

    With copy=False the block describes the scalar's own memory, which its buffer exports.
    """
    cdef Managed* managed
    if request.copy == COPY_NEVER:
        try:
            array = ndarray((), array_of_scalar(obj).dtype, obj)      # obj.dtype may lie, in a subclass
        except (BufferError, TypeError, ValueError) as error:
            raise refusal(CopyRequiredError, "numpy", "copy", False,
                          f"but {shown(type(obj), full_name)} does not give its memory", "pass copy=None") from error
        return acquire(array, offer, request)
    managed = acquire(array_of_scalar(obj), offer, request)
    managed.abi.flags |= DLPACK_FLAG_BITMASK_IS_COPIED
    return managed


cdef object base_of(object array):
    cdef PyObject* base = array_base(array)
    if base == NULL:
        return None
    return (<object> base).base if type(<object> base) is between else <object> base


cdef int hold_base(Managed* managed, object array) except -1:
    """Hold the buffer that an array lies over; on failure the block is released.

    NumPy keeps the exporter, but not its export. An array over shared memory or over a file would outlive the mapping,
    which close() takes away if nothing holds an export.
    """
    cdef object base = array
    while isinstance(base, ndarray) and array_base(base) != NULL:
        base = base_of(base)
    if not counts_exports(Py_TYPE(<PyObject*> base)):
        return 0
    try:
        held = held_buffer(base, PyBUF_FULL_RO)
    except BufferError:
        return 0                # it is no exporter of this memory
    except BaseException as error:
        managed_release(managed)
        if not isinstance(error, ValueError):
            raise
        raise refusal(ConversionError, "numpy", "base", shown(type(base), full_name),
                      f"has released its memory: {error}", "convert the array before that") from error
    managed_keep_export(managed, held)


cdef bint describe(object obj, Offer offer, Managed* out, int64_t* room) noexcept:
    cdef int number = array_type(obj)
    cdef int row = by_numpy_type[number] if 0 <= number < NUMPY_TYPES else NO_ROW
    if row == NO_ROW or (array_base(obj) != NULL and not is_own_memory(obj)):
        return False
    managed_begin(out, PROTOCOL_NUMPY, array_ndim(obj), room)
    return fill(out, obj, row) or not find_fault(out, out.abi.dl_tensor.shape, out.abi.dl_tensor.strides)


cdef bint is_own_memory(object array) noexcept:
    """Whether the memory stays as long as the array, so that no export of the array's base is to be held."""
    cdef PyObject* base = array_base(array)
    while base != NULL and isinstance(<object> base, ndarray):
        base = array_base(<object> base)
    return base == NULL or type(<object> base) is not between and not counts_exports(Py_TYPE(base))


cdef object NOMASK = np.False_      # numpy.ma.nomask, without the import of numpy.ma


cdef Managed* acquire_masked(object obj, Offer offer, const Request* request) except? NULL:
    mask = offer.mask_of(obj)
    if mask is not NOMASK:              # NOMASK is False: the array has no mask
        mask = np.asarray(mask)
        # The mask of an array of records has a bool for each field.
        mask = mask if mask.dtype.names is None else np.ascontiguousarray(mask).view("?")
        hidden = np.count_nonzero(mask)
        if hidden:
            raise refusal(UnsupportedError, "numpy", "mask", f"of {type(obj).__name__}",
                          f"hides {hidden} of {mask.size} values, which would pass for real ones",
                          offer.facts.hint("mask"))
    return acquire(obj, offer, request)


cdef Managed* refuse_dtype(object array) except NULL:
    dtype = array.dtype
    cdef int ndim = array_ndim(array)
    # CPython 3.11 loses the arguments of a Python call that it has no memory for, so the array is not passed to one.
    side_by_side = ndim > 0 and array_strides(array)[ndim - 1] == dtype.itemsize
    hint = hint_for_objects(array) if dtype.kind == "O" else hints().for_array(dtype, side_by_side)
    raise refusal(ConversionError, "numpy", "dtype", dtype, "has no DLPack type", hint)


cdef str hint_for_objects(object array):
    """A hint by the types of the first thousand objects. It is a C function, as a Python call may lose the array."""
    objects = array.ravel()[:1000].tolist()
    kinds = {*map(type, objects)}
    for bases, code in hints().OBJECTS:
        if kinds and kinds == {kind for kind in kinds if issubclass(kind, bases)}:
            return hints().of_integers(code, min(objects), max(objects)) if np.integer in bases[1:2] else code
    of_library = {facts_of(kind).own_hint("objects") for kind in kinds}
    if len(of_library) == 1 and None not in of_library:
        return of_library.pop()
    return hints().OF_ARRAYS if [kind for kind in kinds if hasattr(kind, "shape")] else hints().NO_HINT


# ---- an ndarray over memory ------------------------------------------------------------------------------------------

cdef char[1] nowhere            # NumPy allocates memory if it is given NULL, where empty memory may be


cdef PyObject* array_over(const Managed* memory) except NULL:
    """An ndarray without a base."""
    cdef int64_t strides_bytes[MAX_NDIM]
    cdef int64_t* strides = NULL         # NumPy computes the strides of compact arrays itself, in half the time
    cdef object dtype = numpy_dtype(memory.row)
    cdef char* data = managed_data(memory)
    cdef int flags = 0 if memory.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY else ARRAY_WRITEABLE
    if memory.marks & (STRIDED | BYTE_STRIDES | LENGTH_1):
        strides = fill_strides(memory, strides_bytes)
    if memory.marks & SWAPPED:
        dtype = dtype.newbyteorder()
    Py_INCREF(dtype)        # NewFromDescr steals it
    return new_array(dtype, memory.abi.dl_tensor.ndim, memory.abi.dl_tensor.shape, strides,
                     data if data != NULL else nowhere, flags)


cdef int64_t* fill_strides(const Managed* managed, int64_t* strides_bytes) noexcept nogil:
    cdef int64_t step = 1 if managed.marks & BYTE_STRIDES else managed_item_bytes(managed)
    cdef int32_t axis
    for axis in range(managed.abi.dl_tensor.ndim):
        strides_bytes[axis] = managed.abi.dl_tensor.strides[axis] * step
    return strides_bytes
