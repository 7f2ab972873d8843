"""How a target library is called, and how its errors are put into dlbridge's words."""

from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.target cimport Target


cdef object deliver(Managed* managed, Target target)

cdef object call_consumer(object importer, Target target, object producer)
cdef object call_kernel(object kernel, object array, str dtype, const DLDevice* device, int64_t nbytes)
# The error for a library that found too little memory, in whatever words it says so; or None.
cdef object exhausted_memory(str name, const DLDevice* device, int64_t nbytes, object error)
cdef str first_line(object error)
# A Tensor for a library's importer, which is to share memory; steals managed, also when it fails.
cdef object tensor_to_share(Managed* managed, Target target)
cdef object waited_capsule(Managed* managed)
cdef object consumer_error(Target target)
cdef object wrap_error(Target target, object error)
