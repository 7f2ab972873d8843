"""Numba's DeviceNDArray, over memory that a Tensor keeps."""

from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1
