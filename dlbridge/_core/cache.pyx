"""What is found out once for a type, or for a type and a target. cache.pxd has the way to it."""

cimport cython

from cpython.object cimport PyObject

from dlbridge._core.atomic cimport add_size, load_size

cdef extern from "Python.h":
    void Py_XDECREF(PyObject* obj) noexcept
    PyObject* PyThreadState_GetDict() noexcept


cdef size_t registrations = 0       # atomic: how often the cache was cleared


@cython.auto_pickle(False)
cdef class Entry:
    """What was found out for a type and a key, both of which it keeps alive."""


cdef size_t count_registrations() noexcept:
    return load_size(&registrations)


cdef void put(Section section, Entry entry, size_t begun) noexcept:
    """Put an entry in its slot. The one that was there moves to the slot beside it, and the one there is dropped.

    An entry that was begun before a registration is not kept. Another thread can register something while an entry is
    made, and so can code of other packages, which runs in predicates and imports.
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
