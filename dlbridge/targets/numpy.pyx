"""numpy.ndarray, through NumPy's C API."""

import numpy as np

cimport numpy
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_INCREF

from dlbridge.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge.dtypes cimport get_row, numpy_dtype, rows_named
from dlbridge.managed cimport BYTE_STRIDES, MAX_NDIM, SWAPPED, Managed, managed_data, managed_release
from dlbridge.targets.target cimport Target

from dlbridge.dtypes import NAMES
from dlbridge.errors import MissingLibraryError

numpy.import_array()

from libc.stdint cimport int32_t, int64_t

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(
        type subtype, numpy.dtype descr, int nd, const numpy.npy_intp* dims, const numpy.npy_intp* strides, void* data,
        int flags, PyObject* obj)
    int PyArray_SetBaseObject(numpy.ndarray array, object base) except -1

cdef int COMPLEX_HALF = NAMES.index("complex32")        # the one type with a PEP 3118 letter that NumPy lacks
cdef const char* OWNER_NAME = "dlbridge.Managed"


cdef Target new_target():
    cdef Target target = Target.__new__(Target)
    target.name = target.library = target.install = "numpy"
    target.accepts = accepts
    target.deliver = deliver
    target._load = _load
    return target


def _load(Target target):
    # ml_dtypes has the packed pair only as two padded elements: place unpacks it.
    target.rows = rows_named(name for name in NAMES if not name.endswith("_x2"))
    target.array_types = (np.ndarray,)
    # A subclass goes through its source, which refuses a mask and leaves all else behind.
    target.exact = True


cdef object accepts(const Managed* managed, Target target):
    """ml_dtypes' types need ml_dtypes, and some of them a newer one."""
    if get_row(managed.row).format != NULL and managed.row != COMPLEX_HALF:
        return None
    row = managed.row
    if not target.rows >> row & 1:
        return None             # another form of it may do: the plan knows
    try:
        numpy_dtype(row, False)
    except MissingLibraryError as error:
        return error
    return None


cdef object deliver(Managed* managed, Target target):
    """An ndarray over the memory, whose base keeps it alive; read-only where the memory is."""
    cdef numpy.npy_intp strides_bytes[MAX_NDIM]
    cdef numpy.ndarray array
    cdef numpy.dtype dtype
    cdef char* data
    cdef int32_t axis
    cdef int ndim = managed.abi.dl_tensor.ndim
    cdef int64_t step = 1 if managed.marks & BYTE_STRIDES else managed.item_bytes
    cdef int flags = 0 if managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY else numpy.NPY_ARRAY_WRITEABLE
    try:
        dtype = numpy_dtype(managed.row, managed.marks & SWAPPED)
        owner = PyCapsule_New(managed, OWNER_NAME, _release_owner)
    except BaseException:
        managed_release(managed)
        raise
    for axis in range(ndim):
        strides_bytes[axis] = managed.abi.dl_tensor.strides[axis] * step
    # NumPy allocates where it is given NULL, which empty memory may be.
    data = managed_data(managed) if managed.count else <char*> managed
    Py_INCREF(dtype)        # NewFromDescr steals it
    array = PyArray_NewFromDescr(
        np.ndarray, dtype, ndim, managed.abi.dl_tensor.shape, strides_bytes, data, flags, NULL)
    Py_INCREF(owner)        # SetBaseObject steals it
    PyArray_SetBaseObject(array, owner)
    return array


cdef void _release_owner(object capsule) noexcept:
    managed_release(<Managed*> PyCapsule_GetPointer(capsule, OWNER_NAME))
