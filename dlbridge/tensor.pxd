"""Tensor: one Managed that speaks every protocol."""

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport ReadonlyPolicy


cdef class Tensor:
    cdef Managed* managed
    cdef ReadonlyPolicy policy          # for legacy exports, which cannot flag read-only memory
    cdef object __weakref__


# The dictionary of __cuda_array_interface__ 3.
cdef dict cuda_interface(Managed* managed)

# Steals managed, also when it fails.
cdef Tensor new_tensor(Managed* managed, ReadonlyPolicy policy)
