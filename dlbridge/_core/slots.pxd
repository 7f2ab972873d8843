"""Where routes are kept: with the GIL in one place, without it in one for each thread.

Threads that share a route count its references in one word, for which they wait for each other: two of them took 2.2
times as long for a call as one.
"""

from cpython.object cimport PyObject

from dlbridge._core.atomic cimport ONE_AT_A_TIME

cdef enum:
    ROUTES = 256                # a bound, since the routes keep their types alive, and a program may make many types

ctypedef struct Slots:
    size_t registrations        # how many there were when its routes were begun
    PyObject* routes[ROUTES]    # plan.Route, owned, or NULL

cdef Slots shared_slots
cdef Slots* slots_of_thread() noexcept

cdef inline Slots* slots_here() noexcept:
    return &shared_slots if ONE_AT_A_TIME else slots_of_thread()

cdef size_t count_registrations() noexcept
cdef void keep(size_t slot, object route, size_t begun) noexcept
