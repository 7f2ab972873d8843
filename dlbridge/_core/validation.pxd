"""Validation: what a struct can reveal is checked once, on every path, before any library sees the memory."""

from libc.stdint cimport uint64_t

from dlbridge._core.abi cimport DLManagedTensorVersioned, DLTensor
from dlbridge._core.block cimport Managed, Protocol
from dlbridge._core.view cimport View


cdef Managed* managed_from_tensor(Protocol protocol, const DLTensor* tensor, uint64_t flags) except NULL
cdef Managed* managed_take_versioned(Protocol protocol, DLManagedTensorVersioned* foreign) except NULL
cdef Managed* managed_checked(Managed* managed) except NULL
# Takes shape and strides of a borrowed tensor of the host into the view, and checks them. False where there is a fault,
# which the check of a block can name.
cdef bint view_checked(View* view) noexcept nogil
# Takes a layout with strides in bytes. False where there is a fault, or a stride is no multiple of the item size.
cdef bint view_strided(
    View* view, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes, int row,
) noexcept nogil
