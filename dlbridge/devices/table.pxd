"""The device table: a row per DLPack device type, by name and by what its memory is."""

from libc.stdint cimport int32_t

from dlbridge.abi cimport DLDevice


cdef enum:
    ANY_DEVICE_ID = -1          # "cuda" without an index


cdef bint is_host(int32_t device_type) noexcept nogil
cdef int parse_device(object device, DLDevice* out) except -1
cdef bint same_device(const DLDevice* wanted, const DLDevice* actual) noexcept nogil
cdef str device_name(DLDevice device)
