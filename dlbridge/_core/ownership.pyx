"""Ownership: what keeps memory alive, and how that is let go exactly once, from any thread."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc

from dlbridge._core.abi cimport DLManagedTensor, DLManagedTensorVersioned


# These are declared without the GIL, because deleters are called without it and find out themselves whether they hold
# it.
cdef extern from "Python.h":
    void* PyGILState_GetThisThreadState() noexcept nogil
    PyObject* PyErr_Occurred() noexcept nogil
    void PyErr_Fetch(PyObject** kind, PyObject** value, PyObject** traceback) noexcept nogil
    void PyErr_Restore(PyObject* kind, PyObject* value, PyObject* traceback) noexcept nogil
    void PyBuffer_Release(Py_buffer* view) noexcept nogil
    void Py_DECREF(PyObject* obj) noexcept nogil


main_interpreter = view_of_main()

releases[<int> OWNS_NOTHING] = NULL
releases[<int> OWNS_OBJECT] = release_object
releases[<int> OWNS_LOOSE] = release_object
releases[<int> OWNS_BUFFER] = release_buffer
releases[<int> OWNS_MEMORY] = free
releases[<int> OWNS_VERSIONED] = release_versioned
releases[<int> OWNS_LEGACY] = release_legacy
releases[<int> OWNS_WRAPPED] = release_wrapped


cdef void set_fasten(Fasten fasten) noexcept:
    global fasten_loose
    fasten_loose = fasten


cdef void release_owner(uint8_t owns, void* owner) noexcept nogil:
    if owns != OWNS_NOTHING:
        releases[owns](owner)


cdef bint python_is_up() noexcept nogil:
    return python_runs()


# ---- by kind -------------------------------------------------------------------------------------------------------

cdef void release_object(void* owner) noexcept nogil:
    drop_with_gil(owner, drop_object)


cdef void release_buffer(void* owner) noexcept nogil:
    drop_with_gil(owner, drop_buffer)


cdef void release_versioned(void* owner) noexcept nogil:
    release_foreign(owner, drop_versioned)


cdef void release_legacy(void* owner) noexcept nogil:
    release_foreign(owner, drop_legacy)


cdef void release_wrapped(void* owner) noexcept nogil:
    (<Wrapped*> owner).release(owner)


# The caller of these two holds the GIL, although the declarations of Python.h above do not ask for it.
cdef void drop_object(void* owner) noexcept nogil:
    Py_DECREF(<PyObject*> owner)


cdef void drop_buffer(void* owner) noexcept nogil:
    PyBuffer_Release(<Py_buffer*> owner)


cdef void drop_versioned(void* owner) noexcept nogil:
    cdef DLManagedTensorVersioned* foreign = <DLManagedTensorVersioned*> owner
    if foreign.deleter != NULL:
        foreign.deleter(foreign)


cdef void drop_legacy(void* owner) noexcept nogil:
    cdef DLManagedTensor* foreign = <DLManagedTensor*> owner
    if foreign.deleter != NULL:
        foreign.deleter(foreign)


# ---- an object beside the owner ------------------------------------------------------------------------------------

ctypedef struct Kept:
    Wrapped wrapped             # first: release_wrapped() finds the struct by it
    PyObject* object


cdef Wrapped* new_kept(uint8_t owns, void* owner, object obj) noexcept:
    cdef Kept* kept = <Kept*> malloc(sizeof(Kept))
    if kept == NULL:
        return NULL
    kept.wrapped.release = release_kept
    kept.wrapped.owns, kept.wrapped.owner = owns, owner
    Py_INCREF(obj)
    kept.object = <PyObject*> obj
    return &kept.wrapped


cdef void release_kept(void* owner) noexcept nogil:
    cdef Kept* kept = <Kept*> owner
    release_owner(kept.wrapped.owns, kept.wrapped.owner)
    release_object(kept.object)
    free(kept)


# ---- an owner that other code lets go --------------------------------------------------------------------------------

ctypedef struct Called:
    Wrapped wrapped             # first, as in Kept
    Release drop


cdef Wrapped* new_called(void* owner, Release drop) noexcept nogil:
    cdef Called* called = <Called*> malloc(sizeof(Called))
    if called == NULL:
        return NULL
    called.wrapped.release = release_called
    called.wrapped.owns, called.wrapped.owner = OWNS_NOTHING, owner
    called.drop = drop
    return &called.wrapped


cdef void release_called(void* owner) noexcept nogil:
    cdef Called* called = <Called*> owner
    release_foreign(called.wrapped.owner, called.drop)
    free(called)


# ---- the GIL, and a pending exception --------------------------------------------------------------------------------

cdef void release_foreign(void* owner, Release drop) noexcept nogil:
    """Run a foreign deleter, which takes the GIL itself, with a pending exception of this thread put aside.

    Whether the thread holds the GIL is not the test, because torch gives the GIL up before it calls a deleter.
    """
    if (python_runs() and PyGILState_GetThisThreadState() != NULL) or holds_gil():
        drop_with_gil(owner, drop)
    else:
        drop(owner)


cdef void drop_with_gil(void* owner, Release drop) noexcept nogil:
    """Run a function with the GIL.

    Once Python is shutting down, only the thread that shuts it down drops an owner; other threads leak it.
    """
    cdef Attachment attachment
    if attach(main_interpreter, &attachment):
        drop_keeping_error(owner, drop)
        detach(attachment)
    elif holds_gil():
        drop_keeping_error(owner, drop)


cdef void drop_keeping_error(void* owner, Release drop) noexcept nogil:
    """Run a destructor without losing a pending exception (python_spec of DLPack)."""
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* traceback
    if PyErr_Occurred() == NULL:
        drop(owner)
    else:
        PyErr_Fetch(&kind, &value, &traceback)
        drop(owner)
        PyErr_Restore(kind, value, traceback)
