"""Pickles of memory: its bytes as one flat block, and a block over bytes that were received."""

from libc.stdint cimport int64_t

from dlbridge._core.block cimport Managed


# The memory that a pickle describes: on the host, and touching no more bytes than its elements have.
cdef Managed* picklable(Managed* base) except NULL
# A flat block over the bytes of a picklable one, and where its first element is in them. managed is stolen.
cdef Managed* flattened(Managed* managed, int64_t* offset_bytes) except NULL
# A block over received bytes. It is read-only if they are, and holds them.
cdef Managed* unpickled(
    object received, int64_t offset_bytes, tuple shape, tuple strides, str dtype, bint padded,
) except NULL
