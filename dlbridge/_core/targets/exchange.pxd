"""The C exchange API on the library's type."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed
from dlbridge._core.targets.target cimport Target


cdef object deliver(Managed* managed, Target target)
cdef object deliver_capsule(Managed* managed, Target target)
cdef object table_stream(PyObject* target, const DLDevice* device, int64_t* out)
