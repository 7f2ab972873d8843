"""How a target library is called, and how its errors are put into dlbridge's words."""

from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.targets.target cimport Target


cdef object call_consumer(object importer, Target target, object producer)
cdef object call_kernel(object kernel, object array, str dtype, const DLDevice* device, int64_t nbytes)
cdef object call_upload(Managed* managed, Target target, const DLDevice* device)
cdef object waited_capsule(Managed* managed)
cdef object consumer_error(Target target)
cdef object wrap_error(Target target, object error)
