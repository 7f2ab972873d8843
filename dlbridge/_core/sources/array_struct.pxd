"""``__array_struct__``."""

cimport numpy

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts)
cdef Offer offers_instance(object obj, object facts)

cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyArrayInterface:
        int two
        int nd
        char typekind
        int itemsize
        int flags
        numpy.npy_intp* shape
        numpy.npy_intp* strides
        void* data
        void* descr
    int NPY_ARRAY_NOTSWAPPED
    int NPY_ARRAY_WRITEABLE
    int NPY_ARRAY_C_CONTIGUOUS

cdef enum:
    ARRAY_STRUCT_VERSION = 2
