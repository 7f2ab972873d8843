"""NumPy's array interface: ``__array_interface__`` and ``__array_struct__``."""

from cpython.object cimport PyObject

from dlbridge._core.block cimport Managed, Protocol
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object holder, object facts, str attribute)
# Whether the interface of an object has another address now, while the first one is held.
cdef bint is_made_anew(const Managed* first, object obj) except -1

# ---- __array_struct__

cdef extern from "numpy/ndarraytypes.h":
    ctypedef struct PyArrayInterface:
        int two             # always 2
        int nd
        char typekind
        int itemsize
        int flags
        Py_ssize_t* shape
        Py_ssize_t* strides
        void* data
        PyObject* descr
    const int NPY_ARRAY_C_CONTIGUOUS
    const int NPY_ARRAY_NOTSWAPPED
    const int NPY_ARRAY_WRITEABLE

# ---- the entries, of __cuda_array_interface__ too

cdef Managed* new_from_interface(Protocol protocol, object shape, object typestr, object strides) except NULL
cdef int read_address(Protocol protocol, object data, void** address, bint* read_only) except -1
cdef object refuse_field(Protocol protocol, object field, object value, object wrong, object hint)
