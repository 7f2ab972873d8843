"""Access to the operations on memory of CUDA and ROCm. devices/transfers is imported with the first such memory."""

from dlbridge._core.atomic cimport load_flag
from dlbridge._core.devices.table cimport Operations, operations

cdef extern from "Python.h":
    object PyImport_ImportModule(const char* name)


cdef inline Operations* device_operations() except NULL:
    if not load_flag(&operations.ready):
        PyImport_ImportModule("dlbridge._core.devices.transfers")
    return &operations
