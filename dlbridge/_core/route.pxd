"""The route: the sources and the target for a type and a ``to``, cached; and on which device an array is."""

from cpython.object cimport PyObject

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.cache cimport ROUTES, Entry, cached, steal
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target


cdef class Route(Entry):
    cdef readonly Target target
    cdef readonly tuple offers          # of Offer, in the order in which they are asked
    cdef bint already                   # whether the type is the target's own
    cdef object forms                   # libraries/library.Between, where an array may be several arrays; or None
    cdef bint wants_form                # … and whether ``to`` is for one form
    cdef object form_name               # … as it has it
    cdef dict ways                      # … and how each form gets there, which _core/forms finds with its first array
    cdef bint direct                    # whether an array can be made without a block
    cdef bint plain                     # none of these three: a block is made, and delivered
    cdef Request request                # the request of a call without keywords


cdef inline PyObject* target_of(Route route) noexcept:
    """The target, borrowed from the route: threads that count references to one object wait for each other."""
    return <PyObject*> route.target


cdef inline Route route_to(object src, object to, Request* request):
    """The route for src and ``to``. The request gets the target's current stream, and the device of an array ``to``."""
    cdef PyObject* found = cached(ROUTES, <PyObject*> src, <PyObject*> to)
    return aim(request, <Route> steal(found)) if found != NULL else find_route_to(src, to, request)

cdef Route find_route_to(object src, object to, Request* request)
# The route to a target without a source, cached under None. ``otherwise`` is the target where ``to`` is an example that
# no library makes, such as bytes.
cdef Route delivery_to(object to, str otherwise, Request* request)
cdef Route aim(Request* request, Route route)
# Asks for the device of an array, unless the caller asks for one.
cdef int note_device(object array, Route route, Request* request) except -1
# An array over memory that src keeps, for a direct route; None where a block is needed.
cdef object share_directly(object src, Route route, const Request* request)

# ---- on which device an array is; ``hosts`` is the number of devices that a library sees on the host

cdef bint is_on(object array, int hosts, const DLDevice* wanted) except -1
cdef int find_device(object array, int hosts, DLDevice* out) except -1
cdef bint is_on_gpu(object array) except -1
