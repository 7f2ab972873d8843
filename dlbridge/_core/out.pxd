"""out=: an array of the target that is there already, and takes the copy."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target


# Refuses what is no array of the target.
cdef int check_out_type(object out, Target target, const Request* request) except -1
# The memory of out, which can be written; only host memory.
cdef Managed* acquire_out(object out, Target target, const Request* request) except NULL
# Refuses a source of another device, unless device= asks for it to be fetched.
cdef int check_reach(const Managed* source, const Request* request) except -1
# What is done, each with who does it; or why the CPU cannot read the source is raised. It then has the type that
# ``narrow`` gives.
cdef tuple steps_into(const Managed* into, Managed* source, Target target, const Request* request)
# Refuses what does not fit: another dtype or shape.
cdef int check_fit(const Managed* source, const Managed* into) except -1
