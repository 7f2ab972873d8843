"""torch.Tensor, through torch's exchange table."""

from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1
