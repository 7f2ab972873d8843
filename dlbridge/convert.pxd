"""The bridge: acquire, place, deliver."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.route cimport Route


# Acquires src; bytes may be seen with another dtype or shape.
cdef Managed* acquire_seen(object src, Route route, object dtype, object shape, const Request* request) except NULL
# Whether src, which is of the target's own type, can be returned as it is.
cdef bint is_already(object src, Route route, const Request* request) except -1
# Makes an array of a library of a block; managed is stolen, also when this fails. ``to`` is as for convert();
# ``otherwise`` is the target where it is an example that no library makes, such as bytes.
cdef object deliver_to(Managed* managed, object to, str otherwise)
# The route to a target without a source; what its ``to`` says of a device is noted in the request.
cdef Route delivery_to(object to, str otherwise, Request* request)
# convert(src, to) in a tree: what is in several places is copied once. The memo has each copy, after its source, by the
# source's id.
cdef object convert_once(object src, object to, dict memo)
