"""What is found out once for a type, or for a type and a target, until the next registration.

With the GIL there is one cache, without it one for each thread. Threads that share an entry count its references in one
word, for which they wait for each other: two of them took 2.2 times as long for a call as one.
"""

from cpython.object cimport PyObject, PyTypeObject

from dlbridge._core.atomic cimport ONE_AT_A_TIME

cdef enum Section:
    OFFERS                      # of sources/registry: by type
    ROUTES                      # of route: by type and target
    SECTIONS

cdef enum:
    ENTRIES = 1024              # a bound, since entries keep their types alive, and a program may make many types

ctypedef struct Cache:
    size_t registrations        # how many there were when the cache was made or last cleared
    PyObject* entries[SECTIONS][ENTRIES]     # Entry, owned, or NULL


cdef class Entry:
    cdef object kind            # the type
    cdef object key             # the target as it was given, or None


cdef extern from *:
    """
    #define dlbridge_steal(found) (found)
    """
    object steal "dlbridge_steal"(PyObject* entry)      # hands a reference over to Cython

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(PyObject* obj) noexcept
    void Py_INCREF(PyObject* obj) noexcept

cdef Cache shared_cache
cdef Cache* cache_of_thread() noexcept

cdef inline Cache* cache_here() noexcept:
    return &shared_cache if ONE_AT_A_TIME else cache_of_thread()

cdef inline size_t slot_of(PyObject* kind, PyObject* key) noexcept:
    # Objects are at least 16 bytes apart, so the low bits of their addresses do not differ.
    return (<size_t> kind >> 4 ^ <size_t> key >> 3) % ENTRIES

cdef inline PyObject* cached(Section section, PyObject* obj, PyObject* key) noexcept:
    """A new reference to the entry for the type of an object and this very key, or NULL."""
    return cached_of_type(section, <PyObject*> Py_TYPE(obj), key)

cdef inline PyObject* cached_of_type(Section section, PyObject* kind, PyObject* key) noexcept:
    cdef PyObject** entries = cache_here().entries[<int> section]
    cdef size_t slot = slot_of(kind, key)
    cdef PyObject* entry = entry_at(entries, slot, kind, key)
    # An entry can be in either of two slots. With one slot, two entries that are used in turn would replace each other.
    return entry if entry != NULL else entry_at(entries, slot ^ 1, kind, key)

cdef inline PyObject* entry_at(PyObject** entries, size_t slot, PyObject* kind, PyObject* key) noexcept:
    cdef PyObject* entry = entries[slot]
    if entry == NULL or <PyObject*> (<Entry> entry).kind != kind or <PyObject*> (<Entry> entry).key != key:
        return NULL
    Py_INCREF(entry)
    return entry

# Count the registrations before an entry is made. put() drops an entry if there was a registration since that count.
cdef size_t count_registrations() noexcept
cdef void put(Section section, Entry entry, size_t begun) noexcept
