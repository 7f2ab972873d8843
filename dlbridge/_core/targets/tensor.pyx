"""dlbridge.Tensor itself."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport READONLY_COPY
from dlbridge._core.targets.target cimport Target
from dlbridge.tensor cimport new_tensor


cdef int prepare(Target target) except -1:
    target.deliver = deliver
    return 0


cdef object deliver(Managed* managed, Target target):
    return new_tensor(managed, READONLY_COPY)
