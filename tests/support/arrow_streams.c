/* Callbacks of an Arrow stream that ctypes cannot make: they leave an exception of Python behind. */

#include <Python.h>

static int leave(PyObject *kind, const char *text) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_SetString(kind, text);
    PyGILState_Release(state);
    return 5;
}

int leaves_error(void *stream, void *out) { (void) stream, (void) out; return leave(PyExc_OSError, "the disk is gone"); }
int leaves_interrupt(void *stream, void *out) { (void) stream, (void) out; return leave(PyExc_KeyboardInterrupt, ""); }
int leaves_and_succeeds(void *stream, void *out) { leaves_interrupt(stream, out); return 0; }
