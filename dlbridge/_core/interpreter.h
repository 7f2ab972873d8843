/* What differs between the versions of CPython, and between its builds with and without the GIL. */
#ifndef DLBRIDGE_INTERPRETER_H
#define DLBRIDGE_INTERPRETER_H

#include <Python.h>

/* Only one thread holds the GIL. So with it a lock, which is one byte, zero at first, does nothing; and the count of an
   object that the caller has a reference to says whether other code holds it too. */
#ifdef Py_GIL_DISABLED
  #define DLBRIDGE_GIL 0
  #define dlbridge_lock(where) PyMutex_Lock((PyMutex *) (where))
  #define dlbridge_unlock(where) PyMutex_Unlock((PyMutex *) (where))
  #define DLBRIDGE_OTHERS_HOLD(obj) 0
#else
  #define DLBRIDGE_GIL 1
  #define dlbridge_lock(where) ((void) (where))
  #define dlbridge_unlock(where) ((void) (where))
  #define DLBRIDGE_OTHERS_HOLD(obj) (Py_REFCNT(obj) > 1)
#endif

#if PY_VERSION_HEX >= 0x030D0000
  #define DLBRIDGE_FINALIZING() Py_IsFinalizing()
  #define DLBRIDGE_RUNNING_STATE() PyThreadState_GetUnchecked()
#else
  #define DLBRIDGE_FINALIZING() _Py_IsFinalizing()
  #define DLBRIDGE_RUNNING_STATE() _PyThreadState_UncheckedGet()
#endif
#define DLBRIDGE_PYTHON_RUNS() (Py_IsInitialized() && !DLBRIDGE_FINALIZING())

/* PyGILState_Check() says yes to every thread once the process has a subinterpreter, so it is not used. */
static inline int dlbridge_holds_gil(void) {
    PyThreadState *mine = PyGILState_GetThisThreadState();
    return mine != NULL && mine == DLBRIDGE_RUNNING_STATE();
}

#if PY_VERSION_HEX >= 0x030F0000
  /* PEP 788: Python does not end while a thread is attached, and no thread attaches once Python ends. */
  typedef PyThreadStateToken *dlbridge_Attachment;
  #define DLBRIDGE_MAIN_INTERPRETER() PyInterpreterView_FromMain()
  static inline int dlbridge_attach(void *interpreter, dlbridge_Attachment *attachment) {
      /* NULL where nothing has to be undone. PyThreadState_EnsureFromView() allocates, so it is not called then. */
      *attachment = NULL;
      if (dlbridge_holds_gil())
          return !DLBRIDGE_FINALIZING();
      *attachment = PyThreadState_EnsureFromView((PyInterpreterView *) interpreter);
      return *attachment != NULL;
  }
  static inline void dlbridge_detach(dlbridge_Attachment attachment) {
      if (attachment != NULL)
          PyThreadState_Release(attachment);
  }
#else
  /* Python could begin to end between the two calls; the thread then waits for ever, which harms nothing. */
  typedef PyGILState_STATE dlbridge_Attachment;
  #define DLBRIDGE_MAIN_INTERPRETER() NULL
  static inline int dlbridge_attach(void *interpreter, dlbridge_Attachment *attachment) {
      (void) interpreter;
      if (!DLBRIDGE_PYTHON_RUNS())
          return 0;
      *attachment = PyGILState_Ensure();
      return 1;
  }
  #define dlbridge_detach(attachment) PyGILState_Release(attachment)
#endif

static inline PyObject *dlbridge_take_raised(void) {
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *kind, *error, *traceback;
    PyErr_Fetch(&kind, &error, &traceback);
    if (kind == NULL) {
        return NULL;
    }
    PyErr_NormalizeException(&kind, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    Py_DECREF(kind);
    Py_XDECREF(traceback);
    return error;
#endif
}

#endif
