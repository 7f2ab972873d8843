"""NumPy's array interface: ``__array_interface__`` and ``__array_struct__``."""

from cpython.object cimport PyObject

from dlbridge._core.block cimport Managed
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object holder, object facts, str attribute)
# Whether the interface of an object has another address now, while the first one is held.
cdef bint is_made_anew(const Managed* first, object obj) except -1

cdef extern from "numpy/ndarraytypes.h":
    ctypedef struct PyArrayInterface:
        int two
        int nd
        char typekind
        int itemsize
        int flags
        Py_ssize_t* shape
        Py_ssize_t* strides
        void* data
        PyObject* descr
    int NPY_ARRAY_C_CONTIGUOUS
    int NPY_ARRAY_NOTSWAPPED
    int NPY_ARRAY_WRITEABLE
