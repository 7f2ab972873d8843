"""dlbridge.Tensor itself."""

from dlbridge._core.managed cimport Managed
from dlbridge._core.request cimport READONLY_COPY
from dlbridge._core.targets.target cimport Target
from dlbridge.tensor cimport Tensor, new_tensor


cdef Target new_target():
    cdef Target target = Target.__new__(Target)
    target.name = "dlbridge"
    target.deliver = deliver
    target._load = _load
    return target


def _load(Target target):
    target.array_types = (Tensor,)


cdef object deliver(Managed* managed, Target target):
    return new_tensor(managed, READONLY_COPY)
