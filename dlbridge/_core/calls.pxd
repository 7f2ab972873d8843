"""The calling convention of convert() and asdlpack(): a C function in front of Cython's wrapper of each."""

from cpython.object cimport PyObject

from dlbridge._core.request cimport Request


# convert(), as Python calls a function of METH_FASTCALL | METH_KEYWORDS.
cdef object convert_plainly(PyObject* self, PyObject** arguments, Py_ssize_t count, PyObject* names)
# convert() with the keywords read. A dtype and a shape, or None, describe bytes.
cdef object convert_as(object src, object to, object dtype, object shape, Request* request)
# … and without these two: src may be several arrays.
cdef object convert_any(object src, object to, Request* request)
# Puts the C functions into the module that has the wrappers, under their names.
cdef int put_in_front(object module, object convert, object asdlpack) except -1
