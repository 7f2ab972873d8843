"""Transfers between pageable memory of the host and a device, by several threads through pinned memory.

A driver copies pageable memory by one thread, through pinned memory of its own. Here each thread has two pinned
buffers and a stream for each of them. It fills one buffer, or empties it, while the bus is busy with the other; strides
and byte order are changed on the way, and the pages of new memory are written to for the first time by all of them.
"""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.copying cimport Copy
from dlbridge._core.devices.cuda cimport Driver, DriverFailure


cdef enum Direction:
    UP                          # to the device
    DOWN


# Whether memory is large enough, and there are cores for it.
cdef bint is_worth(int64_t nbytes) noexcept nogil
# Whether memory is worth staging, and is pageable.
cdef bint is_staged(Driver* driver, const void* host, int64_t nbytes) noexcept nogil
# Moves memory after the work that a stream was given, and waits until it is there. On the device it is compact, in the
# order of copy.into. False if it was not done: a call failed, or there is no pinned memory, or other transfers have it.
cdef bint stage(
    Driver* driver, int32_t device_id, void* memory, const Copy* copy, Direction direction, int64_t stream,
    DriverFailure* failure,
) noexcept nogil
