"""Who can still write to read-only memory."""

from dlbridge._core.block cimport Managed


# By name; None where nobody does, so that the memory is constant.
cdef str find_writer(const Managed* managed)
