"""Numba's DeviceNDArray, over memory that a Tensor keeps."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT, DLDevice, kDLCUDA
from dlbridge._core.block cimport Managed, managed_shape
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, Operations
from dlbridge._core.dtypes cimport numpy_dtype
from dlbridge._core.exports cimport cuda_interface
from dlbridge._core.request cimport READONLY_SHARE, Request
from dlbridge._core.target cimport Target
from dlbridge._core.targets cimport numpy
from dlbridge._core.targets.importer cimport call_consumer
from dlbridge.tensor cimport new_tensor

from dlbridge.libraries.numba_arrays import check, makers, primary_context


def prepare(Target target):
    target.deliver = deliver
    target.upload = upload
    target.allocate = allocate
    target.current_stream = current_stream


cdef object current_stream(PyObject* target, const DLDevice* device, int64_t* out):
    """The default stream, on which Numba queues its work unless a kernel is given another stream."""
    import numba

    out[0] = STREAM_PER_THREAD_DEFAULT if getattr(
        numba.config, "CUDA_PER_THREAD_DEFAULT_STREAM", False) else STREAM_LEGACY_DEFAULT
    return None


cdef object deliver(Managed* managed, Target target):
    """Make an array over the memory. Numba's methods use its stream, which is passed if it is not the default one."""
    index = managed.abi.dl_tensor.device.device_id
    shared = new_tensor(managed, READONLY_SHARE)        # it keeps the block alive
    interface = cuda_interface(managed)
    from_interface = target.namespace.from_cuda_array_interface
    if interface["stream"] == STREAM_LEGACY_DEFAULT:
        del interface["stream"]
    kind = index, interface.get("stream") is not None
    make = makers.get(kind) if interface["strides"] is not None else None       # an array without elements has none

    def importer(owner):
        if make is not None:
            return make(interface, owner)
        array = on_device(target, index, lambda: from_interface(interface, owner=owner, sync=False))
        if kind not in makers and interface["strides"] is not None:
            check(target.namespace, index, interface, owner, array)
        return array

    return call_consumer(importer, target, shared)


cdef object on_device(Target target, int index, object make):
    """Call ``make`` with a device's context, and restore the context that was current before.

    Numba does not restore it itself the first time that it enters another device.
    """
    cdef Operations* operations = device_operations()
    cdef void* before = operations.current_context(kDLCUDA)
    cuda = target.namespace
    if before != NULL and primary_context(cuda, index) == <size_t> before:
        return make()
    try:
        if cuda.current_context().device.id == index:
            return make()
        with cuda.gpus[index]:
            return make()
    finally:
        operations.restore_context(kDLCUDA, before)


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    """Copy host memory to a device by Numba's own copy, which takes only compact arrays."""
    cuda, array = target.namespace, numpy.deliver(managed, target)
    return on_named(target, device, lambda: cuda.to_device(array if array.flags.c_contiguous else array.copy()))


cdef object allocate(const Managed* like, Target target, const DLDevice* device):
    shape, dtype = managed_shape(like), numpy_dtype(like.row)
    return on_named(target, device, lambda: target.namespace.device_array(shape, dtype))


cdef object on_named(Target target, const DLDevice* device, object make):
    """on_device(), for a device that may have no number."""
    cdef int index = device.device_id
    return make() if index == ANY_DEVICE_ID else on_device(target, index, make)
