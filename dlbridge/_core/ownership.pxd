"""Ownership: what keeps memory alive, and how it is let go: exactly once, from any thread."""

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
    /* PyGILState_Check() would say yes to every thread once there is a subinterpreter anywhere in the process. */
    static inline int dlbridge_holds_gil(void) {
        PyThreadState *mine = PyGILState_GetThisThreadState();
        return mine != NULL && mine == DLBRIDGE_RUNNING_STATE();
    }
    #define dlbridge_exporter(view) (((Py_buffer *) (view))->obj)
    /* Of an object to which the caller has a reference and whose count no other thread can change meanwhile. */
    #ifdef Py_GIL_DISABLED
      #define DLBRIDGE_OTHERS_HOLD(obj) 0
    #else
      #define DLBRIDGE_OTHERS_HOLD(obj) (Py_REFCNT(obj) > 1)
    #endif
    """
    # Python is neither shut down nor on its way there.
    bint python_runs "DLBRIDGE_PYTHON_RUNS"() noexcept nogil
    bint holds_gil "dlbridge_holds_gil"() noexcept nogil
    PyObject* exporter "dlbridge_exporter"(void* view) noexcept nogil
    bint others_hold "DLBRIDGE_OTHERS_HOLD"(PyObject* obj) noexcept nogil


# The kinds of owner. The kind says how the owner is let go.
cdef enum Owns:
    OWNS_NOTHING                # or no longer anything
    OWNS_OBJECT                 # a PyObject
    OWNS_BUFFER                 # a Py_buffer at the end of the block
    OWNS_MEMORY                 # malloc's
    OWNS_BASE                   # a reference to another block
    OWNS_VERSIONED              # a foreign DLManagedTensorVersioned
    OWNS_LEGACY                 # a foreign DLManagedTensor
    OWNS_WRAPPED                # a Wrapped around one of the others
    OWNER_KINDS                 # how many there are


# Lets an owner go. It runs exactly once, from any thread, with or without the GIL, maybe with an exception pending.
ctypedef void (*Release)(void* owner) noexcept nogil

# The beginning of a struct that does more when its owner is let go. Its release frees the struct too.
ctypedef struct Wrapped:
    Release release
    void* owner
    uint8_t owns                # Owns, of that owner


# By Owns. The block fills in OWNS_BASE, since no other room knows blocks.
cdef Release[OWNER_KINDS] releases

cdef void release_owner(uint8_t owns, void* owner) noexcept nogil
# Runs a function that releases foreign memory. That function takes the GIL itself if it needs it.
cdef void release_foreign(void* owner, Release drop) noexcept nogil
cdef void drop_keeping_error(void* owner, Release drop) noexcept nogil
cdef void drop_buffer(void* owner) noexcept nogil
cdef bint python_is_up() noexcept nogil

# A Wrapped that owns what is given and a reference to ``obj``; NULL where there is no memory for it.
cdef Wrapped* new_kept(uint8_t owns, void* owner, object obj) noexcept
