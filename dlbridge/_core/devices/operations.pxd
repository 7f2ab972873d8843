"""Access to the operations on memory of CUDA and ROCm. devices/transfers is imported with the first such memory."""

from dlbridge._core.atomic cimport load_flag
from dlbridge._core.devices.table cimport Operations, operations
from dlbridge._core.late cimport load_module


cdef inline Operations* device_operations() except NULL:
    if not load_flag(&operations.ready):
        load_module("dlbridge._core.devices.transfers")
    return &operations
