"""What ``__array_interface__`` and ``__cuda_array_interface__`` have in common: the dictionary."""

from dlbridge._core.block cimport Managed, Protocol


cdef Managed* new_from_interface(Protocol protocol, object shape, object typestr, object strides) except NULL
cdef int read_address(Protocol protocol, object data, void** address, bint* read_only) except -1
cdef object refuse_field(Protocol protocol, object field, object value, object wrong, object hint)
