"""Who can still write to read-only memory."""

from dlbridge._core.block cimport Managed


# The name of who can write; None if nobody can, so that the memory is constant.
cdef str find_writer(const Managed* managed)
