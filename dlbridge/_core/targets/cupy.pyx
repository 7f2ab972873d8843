"""cupy.ndarray, by its constructor, over memory that a Tensor keeps."""

from contextlib import nullcontext
from itertools import accumulate
from operator import mul

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT, DLDevice, DLTensor, kDLCUDA, kDLROCM
from dlbridge._core.block cimport (
    Managed, integers, managed_data, managed_item_bytes, managed_shape, managed_span, managed_strides,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport ANY_DEVICE_ID
from dlbridge._core.dtypes cimport numpy_dtype
from dlbridge._core.layout cimport STRIDED, Span
from dlbridge._core.request cimport READONLY_SHARE, Request, keeps_handle
from dlbridge._core.target cimport Target
from dlbridge._core.targets cimport numpy
from dlbridge._core.targets.importer cimport call_consumer, wrap_error
from dlbridge.tensor cimport new_tensor


def prepare(Target target):
    target.deliver = deliver
    target.upload = upload
    target.allocate = allocate
    target.current_stream = current_stream
    target.adjust = adjust


def adjust(Target target):
    target.upload_types = 1 << (kDLROCM if target.namespace.cuda.runtime.is_hip else kDLCUDA)


cdef object current_stream(PyObject* target, const DLDevice* device, int64_t* out):
    try:
        stream = (<Target> target).namespace.cuda.get_current_stream(max(0, device.device_id))
        out[0] = stream.ptr or STREAM_LEGACY_DEFAULT
    except Exception as error:
        raise wrap_error(<Target> target, error) from error
    return stream if out[0] > STREAM_PER_THREAD_DEFAULT and keeps_handle(stream) else None


cdef object deliver(Managed* managed, Target target):
    """Make an array over the memory. Its streams were ordered before; CuPy's own importer would order them again."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef Span span = managed_span(managed)
    cdef DLDevice device
    shared = new_tensor(managed, READONLY_SHARE)        # it keeps the block alive
    device_operations().stream_device(managed, &device)
    cuda, array_type = target.namespace.cuda, target.namespace.ndarray
    shape, dtype = managed_shape(managed), numpy_dtype(managed.row)
    strides = None
    if managed.marks & STRIDED:
        strides = integers(tensor.strides, tensor.ndim, managed_item_bytes(managed))
    start = <size_t> managed_data(managed) + span.low_bytes

    def importer(owner):
        memory = cuda.UnownedMemory(start, span.high_bytes - span.low_bytes, owner, device.device_id)
        return array_type(shape, dtype, cuda.MemoryPointer(memory, -span.low_bytes), strides)

    return call_consumer(importer, target, shared)


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    """Copy host memory to a device by CuPy's own copy."""
    array = numpy.deliver(managed, target)
    with device_of(target, device):
        return target.namespace.asarray(array)


cdef object allocate(const Managed* like, Target target, const DLDevice* device):
    shape, strides = managed_shape(like), managed_strides(like)
    # cupy.empty() knows only two orders of axes.
    order = "F" if strides and strides == tuple(accumulate(shape[:len(shape) - 1], mul, initial=1)) else "C"
    with device_of(target, device):
        return target.namespace.empty(shape, numpy_dtype(like.row), order)


cdef object device_of(Target target, const DLDevice* device):
    """The context in which CuPy works on a device."""
    cdef int index = device.device_id
    return nullcontext() if index == ANY_DEVICE_ID else target.namespace.cuda.Device(index)
