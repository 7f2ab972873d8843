"""What is found out once for a type, or for a type and a target. cache.pxd has the way to it."""

import sys
from importlib import import_module

cimport cython

from cpython.object cimport PyObject

from dlbridge._core.atomic cimport add_size, load_flag, load_size, store_flag, store_size

from dlbridge._core.locks import call_in_child
from dlbridge.errors import UnsupportedError, refusal

cdef extern from "Python.h":
    void Py_XDECREF(PyObject* obj) noexcept
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept
    PyObject* PyThreadState_GetDict() noexcept


cdef size_t registrations = 0       # atomic: how often the cache was cleared
cdef size_t pauses = 0              # atomic: how often the garbage collector was paused
cdef bint was_running = False       # atomic: whether it was running before the first of them


@cython.auto_pickle(False)
cdef class Entry:
    """What was found out for a type and a key, both of which it keeps alive."""


cdef size_t count_registrations() noexcept:
    return load_size(&registrations)


cdef void put(Section section, Entry entry, size_t begun) noexcept:
    """Put an entry in its slot. The one that was there moves to the slot beside it, and the one there is dropped.

    An entry that was begun before a registration is not put there. A registration can come while it is made, by another
    thread, or by the code of other packages that predicates and imports run.
    """
    cdef Cache* cache = cache_here()
    cdef size_t slot = slot_of(<PyObject*> entry.kind, <PyObject*> entry.key)
    cdef PyObject* before
    if cache == &no_cache or cache.registrations != begun:
        return
    Py_INCREF(<PyObject*> entry)
    before = exchange(&cache.entries[<int> section][slot], <PyObject*> entry)
    if before != NULL:
        before = exchange(&cache.entries[<int> section][slot ^ 1], before)
        Py_XDECREF(before)          # last, because it may run the code of other packages


cdef inline PyObject* exchange(PyObject** place, PyObject* entry) noexcept:
    cdef PyObject* before = place[0]
    place[0] = entry
    return before


def clear_cache():
    """Drop every entry; each ``register_*`` does so.

    Without the GIL the other threads drop theirs in their next call.
    """
    # The count changes first. An entry that was begun earlier is then either put there before the cache is cleared, or
    # not at all.
    add_size(&registrations, 1)
    renew(cache_here())


cdef void renew(Cache* cache) noexcept:
    """Drop the entries of before the last registration."""
    cdef int section
    cdef int slot
    cache.registrations = load_size(&registrations)
    for section in range(<int> SECTIONS):
        for slot in range(ENTRIES):
            Py_XDECREF(exchange(&cache.entries[section][slot], NULL))


# ---- the garbage collector, paused while an entry is made, which may import modules ----------------------------------

cdef void pause_collector() noexcept:
    """Stop the garbage collector until resume_collector() was called as often as this.

    A callback of the collector (``gc.callbacks``) that converts something would find a module half imported.
    """
    add_size(&pauses, 1)
    if PyGC_Disable():
        store_flag(&was_running, True)


cdef void resume_collector() noexcept:
    # A forked child has no pauses, though it may have been forked in one.
    if load_size(&pauses) and add_size(&pauses, -1) == 0 and load_flag(&was_running):
        store_flag(&was_running, False)
        PyGC_Enable()


def load_module(name):
    """Import a module with its first use, while the garbage collector is paused."""
    pause_collector()
    try:
        return import_module(name)
    except ImportError:
        if sys.meta_path is not None:
            raise
        raise refusal(UnsupportedError, "import", "module", name, "cannot be imported, since Python goes down",
                      "call the same function with the same kinds of arrays before") from None
    finally:
        resume_collector()


def _resume_in_child():
    """In a forked child, the threads that have paused the collector do not run."""
    store_size(&pauses, 0)
    if load_flag(&was_running):
        store_flag(&was_running, False)
        PyGC_Enable()


call_in_child(_resume_in_child)


# ---- without the GIL -------------------------------------------------------------------------------------------------

cdef extern from *:
    """
    static _Thread_local void *dlbridge_cache_of_thread;
    """
    void* current_cache "dlbridge_cache_of_thread"      # Cache, in the thread's ThreadCache, or NULL

cdef Cache no_cache     # of a thread that cannot have its own: nothing is ever kept there


@cython.auto_pickle(False)
cdef class ThreadCache:
    """The cache of a thread, which its state keeps alive."""

    cdef Cache cache

    def __dealloc__(self):
        global current_cache
        # The state of a thread may be cleared by another thread, when Python ends.
        if current_cache == &self.cache:
            current_cache = NULL
        renew(&self.cache)


cdef Cache* cache_of_thread() noexcept:
    cdef Cache* cache = <Cache*> current_cache
    if cache == NULL:
        return new_cache()
    if cache.registrations != load_size(&registrations):
        renew(cache)
    return cache


cdef Cache* new_cache() noexcept:
    global current_cache
    cdef PyObject* state = PyThreadState_GetDict()
    cdef ThreadCache made
    if state == NULL:
        return &no_cache
    try:
        made = ThreadCache.__new__(ThreadCache)
        (<dict> state)["dlbridge._core.cache"] = made
    except MemoryError:
        return &no_cache
    made.cache.registrations = load_size(&registrations)
    current_cache = &made.cache
    return &made.cache
