"""Arrays that are several arrays, such as sparse ones."""

from dlbridge._core.request cimport Request
from dlbridge._core.route cimport Route


# For explain(): the library of the parts, and of each part its name, its array and why it is copied first; or None
# where the array is not taken apart.
cdef object parts_to_explain(dict facts, object src, Route route, const Request* request)
# convert() where a source, or what is wanted, may be several arrays.
cdef object convert_form(object src, Route route, const Request* request)
