"""Copies of host memory in memory of a device's pool, for results whose memory no library gives."""

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed


# A copy on a device, dense and of nobody else; ``device`` may have no number.
cdef Managed* sent_to_pool(Managed* managed, const DLDevice* device) except NULL
