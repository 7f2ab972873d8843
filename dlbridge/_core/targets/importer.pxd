"""The library's own importer, a Python function: it takes a Tensor, a legacy capsule or an ndarray."""

from dlbridge._core.block cimport Managed
from dlbridge._core.target cimport Target


cdef object deliver(Managed* managed, Target target)
