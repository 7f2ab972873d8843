"""The hand-over of device memory: which stream waits for which, from the acquired block to the delivered array.

This is the order of a conversion:

1. A source notes the stream on which the memory is ready (``set_producer`` of devices/table).
2. ORDER, a step of the decision, lets the consumer's stream wait for that stream, before the target's library sees the
   memory.
3. ORDER_COPY, ``hand_over_library_copy`` and ``hand_over_upload`` do the same for a copy that was made since.
4. When the last consumer lets go, devices/releases lets the producer's stream wait for the consumer's stream, or keeps
   the memory until that is done.
"""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target


# The stream that waits for a copy which the library makes; STREAM_UNORDERED for none.
cdef int64_t settle(Managed* managed, int32_t steps, const Request* request) except? -2
cdef object hand_over_library_copy(object array, Target target, int64_t stream)
cdef object hand_over_upload(object array, Target target, const Request* request)
cdef object hand_over_itself(object src, const Request* request)
