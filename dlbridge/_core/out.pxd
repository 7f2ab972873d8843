"""out=: an array of the target that is there already, and takes the copy."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target


# Why out= copies, and what would avoid that.
cdef str OUT
cdef str OUT_ASKED
# Refuses what is no array of the target, and copy=False, since out= takes a copy.
cdef int check_out_type(object out, Target target, const Request* request) except -1
# The memory of out. Memory of a device is refused, and memory that cannot be written.
cdef Managed* acquire_out(object out, Target target, const Request* request) except NULL
# Refuses a source of another device, unless device= asks for it to be fetched.
cdef int check_reach(const Managed* source, const Request* request) except -1
# The row of the elements that out gets, as ``narrow`` has it.
cdef int row_into(const Managed* source, Target target, const Request* request) except -2
# The steps, each with who does it. It raises if the CPU cannot read the source.
cdef tuple steps_into(const Managed* into, const Managed* source, int row, const Request* request)
# Refuses what does not fit: another dtype or shape.
cdef int check_fit(const Managed* source, const Managed* into) except -1
