"""What a torch tensor carries beside its memory; for both protocols it comes by."""

from libc.stdint cimport uint8_t

from dlbridge._core.managed cimport Managed
from dlbridge._core.request cimport Request


# What an export leaves out.
ctypedef struct Bare:
    int row                     # of the dtype table, where the export is of bytes; else -1
    uint8_t marks               # Mark

cdef int prepare_questions(object kind) except -1
cdef bint is_own_stream(int device_id) except -1
cdef bint is_torch(object kind)
cdef Managed* mark_torch(Managed* managed, object tensor, const Request* request) except NULL
cdef object prepare_subclass(object tensor, const Request* request)
cdef object bare_memory(object tensor, Bare* out)
cdef object torch_refusal(object tensor)
