"""The order in which sources are asked, and the sources that users add."""

from dlbridge.managed cimport Managed
from dlbridge.request cimport Request


cdef list find_offers(object kind)
cdef Managed* acquire_by(list offers, object src, const Request* request) except NULL
