"""Tensor: one Managed that speaks every protocol."""

from libc.stdint cimport uint64_t

from dlbridge._core.abi cimport DLDevice, DLTensor
from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport ReadonlyPolicy


cdef class Tensor:
    cdef Managed* managed
    cdef ReadonlyPolicy policy          # for legacy exports, which cannot flag read-only memory
    cdef unsigned char address_given    # atomic: whether the Tensor holds its block twice: see mark_address_given()
    cdef DLDevice remembered            # where the memory was before it was pickled; of type 0 if it was on the host
    cdef object __weakref__


# Steals managed, also when it fails.
cdef Tensor new_tensor(Managed* managed, ReadonlyPolicy policy)

# A function that makes the Tensor again, and its arguments, by value. Protocol 5 copies no compact host memory.
cdef tuple pickled(Tensor tensor, int protocol)

# What a pickle has in the place of a Tensor that other processes can map, or None. The module of such memory sets it.
ctypedef object (*FindSendable)(Tensor tensor)

cdef void set_find_sendable(FindSendable found) noexcept

# Fresh memory of the host for a description, of which dtype, ndim, shape and device count.
cdef Managed* new_like(const DLTensor* prototype, uint64_t flags) except NULL
