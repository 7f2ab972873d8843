"""cupy.ndarray, through CuPy's own importer."""

from contextlib import nullcontext
from itertools import accumulate
from operator import mul

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, DLDevice, kDLCUDA, kDLROCM
from dlbridge._core.block cimport Managed, managed_shape
from dlbridge._core.devices.table cimport ANY_DEVICE_ID
from dlbridge._core.dtypes cimport numpy_dtype
from dlbridge._core.place cimport dense_strides
from dlbridge._core.request cimport Request, keeps_handle
from dlbridge._core.targets cimport numpy
from dlbridge._core.targets.consumer cimport filled, wrap_error
from dlbridge._core.targets.importer cimport deliver
from dlbridge._core.targets.target cimport Target


def prepare(Target target):
    target.deliver = deliver
    target.upload = upload
    target.stage = stage
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
    return stream if keeps_handle(stream) else None


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    """Copy host memory to a device by CuPy's own copy."""
    array = numpy.deliver(managed, target)
    with device_of(target, device):
        return target.namespace.asarray(array)


cdef object stage(Managed* source, Target target, const DLDevice* device):
    shape, strides = managed_shape(source), dense_strides(source)
    # Of the orders of axes, CuPy's function knows two.
    order = "F" if strides and strides == tuple(accumulate(shape[:len(shape) - 1], mul, initial=1)) else "C"
    with device_of(target, device):
        return filled(target.namespace.empty(shape, numpy_dtype(source.row), order), source)


cdef object device_of(Target target, const DLDevice* device):
    """The context in which CuPy works on a device."""
    cdef int index = device.device_id
    return nullcontext() if index == ANY_DEVICE_ID else target.namespace.cuda.Device(index)
