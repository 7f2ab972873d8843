"""place: copy, swap, relabel: Managed* -> Managed*."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLPackExchangeAPI
from dlbridge._core.block cimport Managed


# What is to be done, in this order; none of them shares.
cdef enum Step:
    TO_HOST_LABEL = 1           # pinned memory, seen as the CPU's
    COPY = 2                    # every element anew; dense memory keeps its order of axes, all else becomes compact
    COPY_SPAN = 4               # the touched bytes anew, with their strides
    PAIRS_TO_PACKED = 8         # two-lane sub-byte elements, seen as twice as many packed ones
    UNPACK = 16                 # packed sub-byte elements, one into each byte
    PACK = 32                   # … and back
    PACKED_TO_PAIRS = 64
    COPY_BY_TARGET = 128        # nothing to do here: the library can take this type only by a copy of its own
    TO_DEVICE_LABEL = 256       # pinned or managed memory, seen as its device's
    FETCH = 512                 # the touched bytes of a device's memory, copied to the host; before all other copies
    UPLOAD = 1024               # nothing to do here: the target's library copies host memory to a device
    IN_C_ORDER = 2048           # with COPY: compact, whatever order of its axes dense memory has


# Steals managed, also when it fails. api: the allocator of the library that the copy is for, or NULL.
cdef Managed* place(Managed* managed, int32_t steps, const DLPackExchangeAPI* api) except NULL
cdef int32_t writable_steps(const Managed* managed) noexcept nogil
cdef int32_t pack_steps(const Managed* managed) noexcept nogil

# Host memory of dlbridge's own for the shape, dtype and padding of ``like``, compact; not validated yet.
cdef Managed* allocated(Managed* like, int64_t nbytes) except NULL
