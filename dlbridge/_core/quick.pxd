"""A short way for a function's plainest call, before its arguments are packed."""

from cpython.object cimport PyObject

cdef extern from "Python.h":
    ctypedef struct PyMethodDef:
        const char* ml_name
        void* ml_meth
        int ml_flags
        const char* ml_doc
    object PyObject_Vectorcall(object function, PyObject** arguments, size_t count, PyObject* names)

# A function of METH_FASTCALL | METH_KEYWORDS. names are the keywords of the last arguments, or NULL.
ctypedef object (*Quick)(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names)


cdef object put_in_front(PyMethodDef* method, Quick quick, object whole)
