"""The hand-over of device memory: which stream waits for which. handover.pxd lists the steps in their order."""

from cpython.object cimport PyObject

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, STREAM_UNORDERED, DLDevice, kDLROCM
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host, parse_device, same_device
from dlbridge._core.location cimport is_on_gpu
from dlbridge._core.place cimport COPY_SPAN, FETCH, TO_DEVICE_LABEL, TO_HOST_LABEL
from dlbridge._core.request cimport Request, consumer_stream
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.targets.consumer cimport call_consumer
from dlbridge._core.targets.target cimport Target

from dlbridge.errors import DeviceError, refusal


# ---- before the memory is used ---------------------------------------------------------------------------------------

cdef int hand_over(Managed* managed, Target target, int32_t steps, const Request* request) except -1:
    """Order the memory before it is used.

    The consumer's stream waits until the memory is ready. If the CPU is to read it, this thread waits.
    """
    cdef DLDevice device
    cdef int64_t stream
    if steps & TO_DEVICE_LABEL:
        label_as_device(managed, target, request)
    if not has_streams(managed.abi.dl_tensor.device.device_type):
        return 0
    if request.has_stream and request.stream == STREAM_UNORDERED:
        return device_operations().order_consumer(managed, STREAM_UNORDERED, None, False)
    if steps & TO_HOST_LABEL:
        return device_operations().await_producer(managed)
    if steps & FETCH:
        return 0                # the copy waits for the producer itself
    # A library that dlbridge cannot ask for a current stream names its stream when it consumes the Tensor.
    if request.has_stream or request.current_stream != NULL:
        device_operations().stream_device(managed, &device)
        keeper = consumer_stream(request, &device, &stream)
        device_operations().order_consumer(managed, stream, keeper, False)
    return 0


cdef int label_as_device(Managed* managed, Target target, const Request* request) except -1:
    """Label pinned or managed memory as its device's, if the caller asked for that device or for none."""
    device_operations().label_device(managed)
    if request.has_device and not same_device(&request.device, &managed.abi.dl_tensor.device):
        raise refusal(DeviceError, target.name, "device", device_name(managed.abi.dl_tensor.device),
                      f"is not {device_name(request.device)}", "move it with the library that made it")


# ---- copies ----------------------------------------------------------------------------------------------------------

cdef Managed* hand_over_copy(Managed* managed, int32_t steps, const Request* request) except NULL:
    """Let the library's current stream wait for a copy that dlbridge queued on a device, with stream=-1 too.

    stream=-1 is about the producer's work only.
    """
    cdef DLDevice device
    cdef int64_t stream
    if not steps & COPY_SPAN or not request.has_stream or request.stream != STREAM_UNORDERED:
        return managed
    try:
        if request.current_stream != NULL and not is_host(managed.abi.dl_tensor.device.device_type):
            device_operations().stream_device(managed, &device)
            keeper = request.current_stream(request.target, &device, &stream)
            device_operations().order_consumer(managed, stream, keeper, False)
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef int64_t settle(Managed* managed, int32_t steps, const Request* request) except? -2:
    """Note that no release of this memory needs an order, since its stream will wait for the library's copy.

    Returns that stream, on which the memory is ready. If the caller wants no order, nothing is noted, and
    STREAM_UNORDERED is returned, unless the memory is a copy of dlbridge's own.
    """
    cdef int64_t stream
    if request.has_stream and request.stream == STREAM_UNORDERED and not steps & COPY_SPAN:
        return STREAM_UNORDERED
    try:
        stream = device_operations().stream_of(managed)
        device_operations().settle(managed)
    except BaseException:
        managed_release(managed)
        raise
    # The array API standard numbers the default stream 0 for ROCm.
    return 0 if managed.abi.dl_tensor.device.device_type == kDLROCM and stream == STREAM_LEGACY_DEFAULT else stream


cdef object hand_over_library_copy(object array, Target target, int64_t stream):
    """The library's own copy of an array. The source's stream waits for it, so that the source may be written again."""
    waiting = None if stream == STREAM_UNORDERED else stream
    return call_consumer(lambda shared: target.facts.copier.value(shared, waiting), target, array)


cdef object hand_over_upload(object array, Target target, const Request* request):
    """Let the stream that was asked for wait for the library's current stream, on which its upload was queued."""
    cdef DLDevice device
    cdef int64_t current
    if request.has_stream and request.stream != STREAM_UNORDERED and target.current_stream != NULL and hasattr(
            array, "__dlpack_device__"):
        parse_device(tuple(array.__dlpack_device__()), &device)
        target.current_stream(<PyObject*> target, &device, &current)
        device_operations().order_streams(&device, current, request.stream)
    return array


# ---- an array that is the target's own already -----------------------------------------------------------------------

cdef object hand_over_itself(object src, const Request* request):
    """Return an array as it is, after the stream that was asked for is made to wait for it."""
    cdef DLDevice device
    cdef Managed* managed
    cdef Request asked = request[0]
    asked.detach = True         # the array itself is returned, so its gradient is not lost
    if request.stream != STREAM_UNORDERED and is_on_gpu(src):
        managed = acquire_by(offers_for_type(type(src)), src, &asked)
        try:
            if has_streams(managed.abi.dl_tensor.device.device_type):
                device_operations().stream_device(managed, &device)
                device_operations().order_streams(&device, device_operations().stream_of(managed), request.stream)
        finally:
            managed_release(managed)
    return src
