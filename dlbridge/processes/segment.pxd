"""Segments: memory with a descriptor, by which other processes can map it, and the Tensors over it."""

from libc.stdint cimport intptr_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge.tensor cimport Tensor


cdef class Segment:
    cdef DLDevice device
    cdef size_t start                   # the address of its first byte; 0 until it is mapped
    cdef readonly Py_ssize_t nbytes
    cdef readonly intptr_t descriptor   # or a handle, on Windows
    cdef readonly bytes identity        # the same in every process
    cdef bint writable
    cdef object __weakref__
    cdef void unmap(self) noexcept


cdef int check_mapped(Segment segment) except -1
# Finds a Segment by its addresses from now on. It gives the one that was mapped before, if there is one of the same
# identity.
cdef Segment mapped_once(Segment segment, size_t start)
# The Segment that was received before, or None.
cdef Segment known_by(bytes identity)

# A Tensor over all of a Segment that was made for it, or over what is in it from the first element's offset on.
cdef Tensor tensor_of(Segment segment, const Managed* described, Py_ssize_t offset_bytes)
