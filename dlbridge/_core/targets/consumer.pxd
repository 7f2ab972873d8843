"""How a target library is called, and how its errors are put into dlbridge's words."""

from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target


cdef object call_consumer(object importer, Target target, object producer)
cdef object call_kernel(object kernel, object array, str dtype, const DLDevice* device, int64_t nbytes)
cdef object call_upload(Managed* managed, Target target, const DLDevice* device, const Request* request)
cdef object call_stage(Managed* source, Target target, const DLDevice* device)
# A library's new array on a device, filled with elements of the host; None if that was not done.
cdef object filled(object array, Managed* source)
# A Tensor for a library's importer, which is to share memory; steals managed, also when it fails.
cdef object tensor_to_share(Managed* managed, Target target)
cdef object waited_capsule(Managed* managed)
cdef object consumer_error(Target target)
cdef object wrap_error(Target target, object error)
cdef int await_uploads(list queued) except -1
