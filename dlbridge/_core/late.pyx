"""Modules that are imported with their first use: all of them would slow the import of dlbridge."""

import sys
from importlib import import_module

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer

from dlbridge._core.atomic cimport (
    add_size, exchange_pointer, load_flag, load_pointer, load_size, store_flag, store_size,
)

from dlbridge._core.locks import call_in_child, importing
from dlbridge.errors import UnsupportedError, refusal

cdef extern from "Python.h":
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept


cdef dict loaded = {}               # by name; kept, since nothing can be imported while Python goes down


cpdef object load_module(str name):
    """A module, which is imported with its first use, while the garbage collector is paused."""
    module = loaded.get(name)
    if module is not None:
        return module
    pause_collector()
    try:
        with importing.lock:
            return loaded.setdefault(name, import_module(name))
    except ImportError:
        if sys.meta_path is not None:
            raise
        raise refusal(UnsupportedError, "import", "module", name, "cannot be imported, since Python goes down",
                      "call the same function with the same kinds of arrays before") from None
    finally:
        resume_collector()


cdef void* c_function(void** place, str module, str name) except NULL:
    # Cython puts such functions into a dictionary of capsules, by their names.
    if load_pointer(place) == NULL:
        offered = load_module(module).__pyx_capi__[name]
        exchange_pointer(place, PyCapsule_GetPointer(offered, PyCapsule_GetName(offered)))
    return place[0]


# ---- the garbage collector -------------------------------------------------------------------------------------------

cdef size_t pauses = 0              # atomic: the pauses that have not ended
cdef bint was_running = False       # atomic: whether it was running before the first of them


cdef void pause_collector() noexcept:
    add_size(&pauses, 1)
    if PyGC_Disable():
        store_flag(&was_running, True)


cdef void resume_collector() noexcept:
    # A forked child has no pauses, though it may have been forked in one. Without the GIL, a pause that begins in the
    # middle of this one's end may find the collector running.
    if load_size(&pauses) and add_size(&pauses, -1) == 0 and load_flag(&was_running):
        store_flag(&was_running, False)
        PyGC_Enable()


def _resume_in_child():
    """In a forked child, the threads that have paused the collector do not run."""
    store_size(&pauses, 0)
    if load_flag(&was_running):
        store_flag(&was_running, False)
        PyGC_Enable()


call_in_child(_resume_in_child)
