"""The garbage collector, paused while modules are imported."""

from dlbridge._core.atomic cimport add_size, load_size

from dlbridge._core.locks import call_in_child

cdef extern from "Python.h":
    int PyGC_Disable() noexcept
    int PyGC_Enable() noexcept

cdef size_t pauses = 0          # atomic: how many threads have paused the garbage collector


cdef bint pause_collector() noexcept:
    """Stop the garbage collector. Returns what resume_collector() takes.

    A callback of the collector (``gc.callbacks``) that converts something would find a module half imported.
    """
    cdef bint was_running = PyGC_Disable()
    if was_running:
        add_size(&pauses, 1)
    return was_running


cdef void resume_collector(bint was_running) noexcept:
    if was_running:
        PyGC_Enable()
        add_size(&pauses, -1)


def _resume_in_child():
    """In a forked child the thread that has paused the collector does not run."""
    if load_size(&pauses):
        PyGC_Enable()


call_in_child(_resume_in_child)
