"""On which device an array is, and whether that is the one wanted."""

from dlbridge._core.abi cimport DLDevice


cdef bint is_on(object array, int hosts, const DLDevice* wanted) except -1
cdef int find_device(object array, int hosts, DLDevice* out) except -1
cdef bint is_on_gpu(object array) except -1
