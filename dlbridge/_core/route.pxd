"""The route: the sources and the target for a type and a ``to``, cached."""

from cpython.object cimport PyObject, PyTypeObject

from dlbridge._core.cache cimport ROUTES, Entry, cached, steal
from dlbridge._core.request cimport Request
from dlbridge._core.targets.target cimport Target

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(PyObject* obj) noexcept


cdef class Route(Entry):
    cdef readonly Target target
    cdef readonly tuple offers          # of Offer, in the order in which they are asked
    cdef bint already                   # whether the type is the target's own
    cdef Request plain                  # the request of a call without keywords


cdef inline PyObject* cached_route(PyObject* src, PyObject* to) noexcept:
    """A new reference to the Route for the type of src and this very ``to``, or NULL."""
    return cached(ROUTES, <PyObject*> Py_TYPE(src), to)

cdef inline Route route_to(object src, object to, Request* request):
    """The route for src and ``to``. What the target says is noted in the request; an array says its device too."""
    cdef PyObject* found = cached_route(<PyObject*> src, <PyObject*> to)
    return aim(request, <Route> steal(found)) if found != NULL else find_route_to(src, to, request)

cdef Route find_route_to(object src, object to, Request* request)
cdef Route find_route(object src, object to)
cdef object array_type(object to)
cdef Route aim(Request* request, Route route)
