"""NumPy's C API: the few functions that dlbridge calls, on plain objects.

They are declared here instead of being cimported from NumPy. NumPy's own declarations take half of the time in which
Cython compiles a small module, and every module that cimports them looks up a dozen of NumPy's types when it is
imported.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef extern from *:
    """
    #include <numpy/arrayobject.h>
    #define DLBRIDGE_ARRAY(array) ((PyArrayObject *) (array))
    #define dlbridge_array_type(array) PyArray_TYPE(DLBRIDGE_ARRAY(array))
    #define dlbridge_array_flags(array) PyArray_FLAGS(DLBRIDGE_ARRAY(array))
    #define dlbridge_array_ndim(array) PyArray_NDIM(DLBRIDGE_ARRAY(array))
    #define dlbridge_array_data(array) PyArray_DATA(DLBRIDGE_ARRAY(array))
    #define dlbridge_array_shape(array) ((const Py_ssize_t *) PyArray_DIMS(DLBRIDGE_ARRAY(array)))
    #define dlbridge_array_strides(array) ((const Py_ssize_t *) PyArray_STRIDES(DLBRIDGE_ARRAY(array)))
    #define dlbridge_array_base(array) PyArray_BASE(DLBRIDGE_ARRAY(array))
    #define dlbridge_array_of_scalar(scalar) PyArray_FromScalar(scalar, NULL)
    #define dlbridge_array_is_swapped(array) PyArray_ISBYTESWAPPED(DLBRIDGE_ARRAY(array))
    #define dlbridge_array_set_base(array, base) PyArray_SetBaseObject(DLBRIDGE_ARRAY(array), base)
    /* Steals dtype. */
    #define dlbridge_new_array(dtype, ndim, shape, strides, data, flags)                                               \
        PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *) (dtype), ndim, (const npy_intp *) (shape),               \
                             (const npy_intp *) (strides), data, flags, NULL)
    """
    const int NPY_VOID
    const int ARRAY_WRITEABLE "NPY_ARRAY_WRITEABLE"
    const int ARRAY_OWNDATA "NPY_ARRAY_OWNDATA"
    const int ARRAY_C_CONTIGUOUS "NPY_ARRAY_C_CONTIGUOUS"
    int import_array_api "_import_array"() except -1
    int array_type "dlbridge_array_type"(object array) noexcept
    int array_flags "dlbridge_array_flags"(object array) noexcept
    int array_ndim "dlbridge_array_ndim"(object array) noexcept
    void* array_data "dlbridge_array_data"(object array) noexcept
    const Py_ssize_t* array_shape "dlbridge_array_shape"(object array) noexcept
    const Py_ssize_t* array_strides "dlbridge_array_strides"(object array) noexcept
    object array_of_scalar "dlbridge_array_of_scalar"(object scalar)
    PyObject* array_base "dlbridge_array_base"(object array) noexcept
    bint array_is_swapped "dlbridge_array_is_swapped"(object array) noexcept
    int array_set_base "dlbridge_array_set_base"(object array, object base) except -1      # steals base
    PyObject* new_array "dlbridge_new_array"(
        object dtype, int ndim, const int64_t* shape, const int64_t* strides_bytes, void* data, int flags) noexcept
