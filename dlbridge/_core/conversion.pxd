"""Acquire, place, deliver: what every conversion is. A block that is handed in is stolen, also on failure."""

from dlbridge._core.block cimport NOT_YET_OWNED, Managed, managed_own_storage
from dlbridge._core.decision cimport fits
from dlbridge._core.request cimport Request
from dlbridge._core.route cimport Route, target_of
from dlbridge._core.sources.registry cimport acquire_by
from dlbridge._core.target cimport Target


cdef object place_and_deliver(Managed* managed, Target target, const Request* request, object src)

cdef inline object deliver(Managed* managed, Target target, const Request* request, object src=None):
    """Give the target's library memory, placed if it does not fit as it is; managed is stolen, also when this fails.

    ``src`` is the array whose whole memory this is, if there is one.
    """
    if not fits(managed, target, request):
        return place_and_deliver(managed, target, request, src)
    if managed.owns == NOT_YET_OWNED:
        managed_own_storage(managed)
    return target.deliver(managed, target)

cdef inline object convert_by_block(object src, Route route, const Request* request):
    return deliver(acquire_by(route.offers, src, request), <Target> target_of(route), request, src)

# deliver() where it is not in line, for what is rarely asked for.
cdef object deliver_out_of_line(Managed* managed, Target target, const Request* request, object src)
cdef object convert_to(object src, object to, Request* request)
cdef object convert_by_route(object src, Route route, const Request* request)
# Whether src, which is of the target's own type, can be returned as it is.
cdef bint is_already(object src, Route route, const Request* request) except -1
# Makes a library's array from a block. ``to`` is as for convert(). If it is an example that no library makes, such as
# bytes, the target is ``otherwise``.
cdef object deliver_to(Managed* managed, object to, str otherwise)
