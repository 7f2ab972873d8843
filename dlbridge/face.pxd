"""The C API, for the tests; extensions cimport dlbridge itself."""

from libc.stdint cimport uint32_t

from dlbridge._core.target cimport Target
from dlbridge._core.view cimport View, Want


cdef int view(object obj, const Want* want, View* out) except -1
cdef Target wanted_by(uint32_t flags)
