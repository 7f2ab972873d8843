"""Ownership: what keeps memory alive, and how that is let go exactly once, from any thread."""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t


cdef extern from *:
    """
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
    #define dlbridge_exporter(view) (((Py_buffer *) (view))->obj)
    /* Whether other code holds an object too. The caller has a reference to it and holds the GIL, so that no other
       thread can change the count meanwhile. */
    #ifdef Py_GIL_DISABLED
      #define DLBRIDGE_OTHERS_HOLD(obj) 0
    #else
      #define DLBRIDGE_OTHERS_HOLD(obj) (Py_REFCNT(obj) > 1)
    #endif
    #define DLBRIDGE_IS_BYTES(obj) (PyBytes_CheckExact(obj) || PyByteArray_CheckExact(obj))
    """
    # Whether Python is neither shut down nor shutting down.
    bint python_runs "DLBRIDGE_PYTHON_RUNS"() noexcept nogil
    bint holds_gil "dlbridge_holds_gil"() noexcept nogil
    ctypedef int Attachment "dlbridge_Attachment"       # of this thread to Python, until it is detached
    # Whether Python runs; this thread then has the GIL, or is attached where there is none.
    bint attach "dlbridge_attach"(void* interpreter, Attachment* attachment) noexcept nogil
    void detach "dlbridge_detach"(Attachment attachment) noexcept nogil
    void* view_of_main "DLBRIDGE_MAIN_INTERPRETER"() noexcept nogil
    PyObject* exporter "dlbridge_exporter"(void* view) noexcept nogil
    bint others_hold "DLBRIDGE_OTHERS_HOLD"(PyObject* obj) noexcept nogil
    # Whether an object is bytes or a bytearray, whose memory is reached by references to it alone.
    bint is_bytes "DLBRIDGE_IS_BYTES"(PyObject* obj) noexcept nogil


cdef void* main_interpreter     # for attach(): the interpreter that loaded this module, which is the main one

# The kinds of owner. The kind says how the owner is let go.
cdef enum Owns:
    OWNS_NOTHING                # no owner, or none any more
    OWNS_OBJECT                 # a PyObject
    OWNS_LOOSE                  # a PyObject that can let its memory go while it lives, until it is fastened
    OWNS_BUFFER                 # a Py_buffer at the end of the block
    OWNS_MEMORY                 # memory of malloc()
    OWNS_BASE                   # a reference to another block
    OWNS_VERSIONED              # a foreign DLManagedTensorVersioned
    OWNS_LEGACY                 # a foreign DLManagedTensor
    OWNS_WRAPPED                # a Wrapped around one of the others
    OWNER_KINDS                 # how many there are


# Lets an owner go. It runs exactly once, in any thread, with or without the GIL, possibly with an exception pending.
ctypedef void (*Release)(void* owner) noexcept nogil

# The beginning of a struct that does more when its owner is let go. Its release frees the struct too.
ctypedef struct Wrapped:
    Release release
    void* owner
    uint8_t owns                # the kind of that owner, an Owns


# Makes the memory of an object stay, once it is shared. It gives the object that then keeps the memory.
ctypedef object (*Fasten)(object owner)

# Of the objects that are owned as OWNS_LOOSE; their source sets it.
cdef Fasten fasten_loose
cdef void set_fasten(Fasten fasten) noexcept

# The release of each kind of owner, by Owns. block.pyx fills in OWNS_BASE, since this module does not know blocks.
cdef Release[OWNER_KINDS] releases

cdef void release_owner(uint8_t owns, void* owner) noexcept nogil
# Runs a function that releases foreign memory. That function takes the GIL itself if it needs it.
cdef void release_foreign(void* owner, Release drop) noexcept nogil
cdef void drop_keeping_error(void* owner, Release drop) noexcept nogil
cdef void drop_buffer(void* owner) noexcept nogil
cdef bint python_is_up() noexcept nogil

# A Wrapped that takes over the owner and adds a reference to ``obj``; NULL if there is no memory for it.
cdef Wrapped* new_kept(uint8_t owns, void* owner, object obj) noexcept
# A Wrapped that calls a function of other code with the owner; NULL if there is no memory for it.
cdef Wrapped* new_called(void* owner, Release drop) noexcept nogil
