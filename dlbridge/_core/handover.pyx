"""The hand-over of device memory where the library copies it; handover.pxd says where else streams wait."""

from cpython.object cimport PyObject

from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, STREAM_UNORDERED, DLDevice, kDLROCM
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.decision cimport COPY_SPAN
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams, parse_device
from dlbridge._core.location cimport is_on_gpu
from dlbridge._core.request cimport Request
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.target cimport Target
from dlbridge._core.targets.consumer cimport call_consumer


# ---- copies of the library -------------------------------------------------------------------------------------------

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
