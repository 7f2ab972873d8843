"""pyarrow's arrays and tensors."""

from dlbridge._core.targets.target cimport Target


cdef Target new_target()
