"""Where routes are kept, and when they are forgotten."""

cimport cython

from cpython.object cimport PyObject

from dlbridge._core.atomic cimport add_size, load_size

cdef extern from "Python.h":
    void Py_INCREF(PyObject* obj) noexcept
    void Py_DECREF(PyObject* obj) noexcept
    PyObject* PyThreadState_GetDict() noexcept


cdef size_t registrations = 0       # atomic: how often the routes were cleared; a route begun before is not kept


cdef size_t count_registrations() noexcept:
    return load_size(&registrations)


cdef void keep(size_t slot, object route, size_t begun) noexcept:
    """Put a route in its slot. The route that was there moves to the slot beside it, and the one there is let go.

    A route that was begun before a registration is not kept. A registration can come while a route is made, by another
    thread, or by the code of other packages that predicates and imports run.
    """
    cdef Slots* slots = slots_here()
    cdef PyObject* before
    if slots == &no_slots or slots.registrations != begun:
        return
    Py_INCREF(<PyObject*> route)
    before = exchange(slots, slot, <PyObject*> route)
    if before != NULL:
        let_go(exchange(slots, slot ^ 1, before))


cdef inline PyObject* exchange(Slots* slots, size_t slot, PyObject* route) noexcept:
    cdef PyObject* before = slots.routes[slot]
    slots.routes[slot] = route
    return before


cdef void let_go(PyObject* route) noexcept:
    """Drop a reference. This comes last, because it may run the code of other packages."""
    if route != NULL:
        Py_DECREF(route)


def clear_routes():
    """Forget every route; each ``register_*`` does so.

    Without the GIL the other threads forget theirs in their next call.
    """
    # The count changes first. A route that was begun earlier is then either kept before the slots are cleared, or not
    # at all.
    add_size(&registrations, 1)
    renew(slots_here())


cdef void renew(Slots* slots) noexcept:
    """Forget the routes of before the last registration."""
    slots.registrations = load_size(&registrations)
    for slot in range(ROUTES):
        let_go(exchange(slots, slot, NULL))


# ---- without the GIL -------------------------------------------------------------------------------------------------

cdef extern from *:
    """
    static __thread void *dlbridge_slots_of_thread;
    """
    void* current_slots "dlbridge_slots_of_thread"      # Slots, in the thread's ThreadSlots, or NULL

cdef Slots no_slots     # of a thread that cannot have its own: nothing is ever kept there


@cython.auto_pickle(False)
cdef class ThreadSlots:
    """The routes of a thread, which its state keeps alive."""

    cdef Slots slots

    def __dealloc__(self):
        global current_slots
        # The state of a thread may be cleared by another thread, when Python ends.
        if current_slots == &self.slots:
            current_slots = NULL
        renew(&self.slots)


cdef Slots* slots_of_thread() noexcept:
    cdef Slots* slots = <Slots*> current_slots
    if slots == NULL:
        return new_slots()
    if slots.registrations != load_size(&registrations):
        renew(slots)
    return slots


cdef Slots* new_slots() noexcept:
    global current_slots
    cdef PyObject* state = PyThreadState_GetDict()
    cdef ThreadSlots made
    if state == NULL:
        return &no_slots
    try:
        made = ThreadSlots.__new__(ThreadSlots)
        (<dict> state)["dlbridge._core.slots"] = made
    except MemoryError:
        return &no_slots
    made.slots.registrations = load_size(&registrations)
    current_slots = &made.slots
    return &made.slots
