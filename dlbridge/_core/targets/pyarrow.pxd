"""pyarrow's arrays and tensors."""

from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1
