"""How a target library is called, and how its errors are put into dlbridge's words."""

from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.targets.target cimport Target


cdef object call_consumer(object importer, Target target, object producer)
cdef object call_kernel(object kernel, object array, str dtype, const DLDevice* device, int64_t nbytes)
# Whether an upload is so large that fill() is worth a try.
cdef bint is_large(const Managed* managed) except -1
# Fills a library's new array on a device with what an array of the host has. False if that is left to the library.
cdef bint fill(object array, object host) except -1
cdef object call_upload(Managed* managed, Target target, const DLDevice* device, const Request* request)
# A Tensor for a library's importer, which is to share memory; steals managed, also when it fails.
cdef object tensor_to_share(Managed* managed, Target target)
cdef object waited_capsule(Managed* managed)
cdef object consumer_error(Target target)
cdef object wrap_error(Target target, object error)
