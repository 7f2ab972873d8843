"""A short way for a function's plainest call, before its arguments are packed.

Cython's wrapper of a function with five keywords fills in, counts and lets go seven objects for each call. That is a
third of what convert(src, to) costs beside the target library's own constructor. A C function in front of the wrapper
serves the call without keywords itself, and hands on every other call.
"""

from cpython.object cimport PyObject

cdef extern from "Python.h":
    int METH_FASTCALL
    int METH_KEYWORDS
    object PyCFunction_NewEx(PyMethodDef* method, PyObject* self, object module)

cdef list texts = []            # kept for ever, since PyMethodDef has pointers into them


cdef object put_in_front(PyMethodDef* method, Quick quick, object whole):
    """A builtin function with the name, the signature and the documentation of ``whole``."""
    name = whole.__name__.encode()
    doc = f"{whole.__name__}{whole.__text_signature__}\n--\n\n{whole.__doc__}".encode()
    texts.extend((name, doc))
    method.ml_name = name
    method.ml_doc = doc
    method.ml_meth = <void*> quick
    method.ml_flags = METH_FASTCALL | METH_KEYWORDS
    return PyCFunction_NewEx(method, NULL, whole.__module__)
