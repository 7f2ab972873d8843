"""Exceptions that a C call left behind."""

from cpython.object cimport PyObject


cdef extern from "dlbridge/_core/interpreter.h":
    PyObject* take_raised "dlbridge_take_raised"()

cdef extern from "Python.h":
    PyObject* PyErr_Occurred() noexcept nogil
    void Py_DECREF(PyObject* obj) noexcept nogil


cdef inline object take_error():
    """The exception that a C call left behind, or None, since not every library sets one when it fails.

    The exception is not raised and caught here, because Cython needs memory to catch one; without memory it takes a
    missing exception for one. A KeyboardInterrupt or SystemExit is raised, since it is not the answer to the call.
    """
    cdef PyObject* raised = take_raised()
    if raised == NULL:
        return None
    error = <object> raised
    Py_DECREF(raised)
    if not isinstance(error, Exception):
        raise error
    return error


cdef inline int raise_pending() except -1:
    """Raise the exception that a C call left behind, if it left one."""
    return -1 if PyErr_Occurred() != NULL else 0
