"""pyarrow's arrays and tensors."""

from dlbridge.targets.target cimport Target


cdef Target new_target()
