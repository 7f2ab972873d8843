"""Validation: what a struct can reveal is checked once, on every path, before any library sees the memory."""

from libc.stdint cimport uint64_t

from dlbridge._core.abi cimport DLManagedTensorVersioned, DLTensor
from dlbridge._core.block cimport Managed, Protocol


cdef Managed* managed_from_tensor(Protocol protocol, const DLTensor* tensor, uint64_t flags) except NULL
cdef Managed* managed_take_versioned(Protocol protocol, DLManagedTensorVersioned* foreign) except NULL
cdef Managed* managed_checked(Managed* managed) except NULL
