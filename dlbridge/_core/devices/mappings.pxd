"""Device memory with a descriptor, as this process has it mapped."""

from libc.stdint cimport int32_t, int64_t, intptr_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.devices.cuda cimport Driver


ctypedef struct Mapping:
    Driver* driver
    int32_t device_id
    size_t nbytes               # of whole granules
    void* start                 # NULL until it is mapped
    int64_t unordered           # unordered_so_far() when it was made


# The bytes of which the memory is a multiple; 0 where the device's driver has no memory with a descriptor.
cdef size_t granule_of(const DLDevice* device) except? 0
# A Mapping of at least nbytes on a device, which is not yet mapped. A device without a number is the current one.
cdef Mapping mapping_on(str stage, const DLDevice* device, size_t nbytes) except *
# Make pages with a descriptor, which the caller closes, and map them.
cdef int make_pages(Mapping* mapping, intptr_t* descriptor) except -1
# Map the pages of a descriptor, which the caller closes.
cdef int map_pages(Mapping* mapping, intptr_t descriptor) except -1
# Unmap, once the work on the memory is done: it is a fault to use what is unmapped. Where only the whole device
# can be waited for, and that fails, it is unmapped after the next wait for it.
cdef void unmap_pages(const Mapping* mapping) noexcept nogil
cdef int fill_with_zeros(Mapping* mapping) except -1
# Block this thread until the device has done all the work that this process gave it, on every stream. What waits for
# that is unmapped.
cdef int await_device(Mapping* mapping) except -1
cdef bytes uuid_of(Mapping* mapping)
# The number of a device here that another process named by its UUID.
cdef int32_t device_of(bytes uuid) except -1
# dlbridge's own stream of the device, on which the memory is ready.
cdef int64_t own_stream_of(Mapping* mapping) except -1
