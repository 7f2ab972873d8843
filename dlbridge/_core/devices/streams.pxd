"""What is noted of device memory, and which stream waits for which when it is handed over."""

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.block cimport Managed
from dlbridge._core.devices.cuda cimport Driver
from dlbridge._core.devices.releases cimport Handover, Stream


cdef Handover* get_or_make_handover(Managed* managed) except NULL
# A block's Handover with its driver, and the stream on which the memory is ready.
cdef Handover* ready_handover(Managed* managed, int64_t* stream) except NULL
# Loads the driver, and finds the device whose streams matter.
cdef int need_driver(Managed* managed, Handover* handover) except -1
cdef int fill_stream(Stream* stream, int64_t number, object keeper, bint lasts) except -1
cdef int set_producer(Managed* managed, int64_t stream, object keeper, bint lasts) except -1
cdef int order_on_device(Driver* driver, int32_t device_id, int64_t first, int64_t then) except -1
