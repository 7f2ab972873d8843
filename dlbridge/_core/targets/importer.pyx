"""How a target library is called: its own importer takes a Tensor, a legacy capsule or an ndarray.

Any namespace with ``from_dlpack`` is delivered to in this way, and so are targets that users register.
"""

from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.capsule cimport new_legacy_capsule
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport ANY_DEVICE_ID, device_name, has_streams
from dlbridge._core.dtypes cimport row_name
from dlbridge._core.late cimport load_module
from dlbridge._core.pending cimport take_error
from dlbridge._core.request cimport READONLY_SHARE, Request
from dlbridge._core.sources.offer cimport library
from dlbridge._core.target cimport Target
from dlbridge._core.targets cimport numpy
from dlbridge.tensor cimport new_tensor

from dlbridge.errors import ConversionError, DeviceError, DeviceMemoryError, DLBridgeError, refusal


def prepare(Target target):
    target.deliver = deliver
    if target.facts.uploader is not None:
        target.upload = upload


def prepare_for_capsules(Target target):
    target.deliver = deliver_capsule


def prepare_for_ndarrays(Target target):
    target.deliver = deliver_ndarray


cdef object deliver(Managed* managed, Target target):
    return call_consumer(target.function, target, tensor_to_share(managed, target))


cdef object deliver_capsule(Managed* managed, Target target):
    return call_consumer(target.function, target, waited_capsule(managed))


cdef object deliver_ndarray(Managed* managed, Target target):
    """Call the library's importer with its module, an ndarray, and the dtype's name.

    Not every library can tell the dtype from the ndarray.
    """
    name = row_name(managed.row)
    importer, namespace = target.facts.importer, target.namespace
    array = numpy.deliver(managed, target)
    return call_consumer(lambda given: importer(namespace, given, name), target, array)


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    index = None if device.device_id == ANY_DEVICE_ID else device.device_id
    return target.facts.uploader(target.namespace, numpy.deliver(managed, target), index)


# ---- calls of a library, and its errors ------------------------------------------------------------------------------

# Errors that pass through, since they are not about the library: dlbridge's own, and those of the interpreter's limits.
UNTOUCHED = DLBridgeError, MemoryError, RecursionError


cdef object call_consumer(object importer, Target target, object producer):
    """Hand a capsule or a Tensor to the library's own importer."""
    try:
        return importer(producer)
    except UNTOUCHED:
        raise
    except Exception as error:
        raise wrap_error(target, error) from error


cdef object call_kernel(object kernel, object array, str dtype, const DLDevice* device, int64_t nbytes):
    """Let a library make a compact copy of its array, in another dtype if one is named."""
    name = kernel.__module__.rpartition(".")[2]
    try:
        return kernel(array, dtype)
    except library().TooWide:
        raise refusal(ConversionError, "narrow", "value", f"of memory on {device_name(device[0])}",
                      f"does not fit into {dtype}", "scale the values, or pass them in a wide type") from None
    except DLBridgeError:
        raise
    except Exception as error:
        exhausted = exhausted_memory(name, device, nbytes, error)
        if exhausted is None and isinstance(error, UNTOUCHED):
            raise
        raise exhausted or refusal(
            DeviceError, name, "copy", f"{type(error).__qualname__}: {first_line(error)}", "was raised by the library",
            "its message says what it needs") from error


cdef object exhausted_memory(str name, const DLDevice* device, int64_t nbytes, object error):
    if not has_streams(device.device_type) or "out of memory" not in str(error).lower().replace("_", " "):
        return None
    cuda = load_module("dlbridge._core.devices.cuda")
    try:
        available = cuda.memory_of_device(device.device_type, max(0, device.device_id))
    except DeviceError:
        return None
    return refusal(DeviceMemoryError, name, "device", device_name(device[0]),
                   f"{nbytes} bytes were wanted, and {available} are free", cuda.FREE_SOME)


cdef object tensor_to_share(Managed* managed, Target target):
    if target.keeps_imports and has_streams(managed.abi.dl_tensor.device.device_type):
        try:
            device_operations().settle(managed)
        except BaseException:
            managed_release(managed)
            raise
    # The plan has already decided about read-only memory, so an importer that asks for a legacy capsule shares it.
    return new_tensor(managed, READONLY_SHARE)


cdef object waited_capsule(Managed* managed):
    """A legacy capsule for a library that names no stream, so the host waits for device memory; steals managed."""
    try:
        if has_streams(managed.abi.dl_tensor.device.device_type):
            device_operations().await_producer(managed)
    except BaseException:
        managed_release(managed)
        raise
    return new_legacy_capsule(managed)


cdef object consumer_error(Target target):
    """The error for a C call that failed. Its cause is the exception that the call set, if it set one."""
    cause = take_error()
    if isinstance(cause, UNTOUCHED):
        return cause
    wrapped = wrap_error(target, cause)
    wrapped.__cause__ = cause
    return wrapped


cdef object wrap_error(Target target, object error):
    return refusal(ConversionError, target.name, "import", f"{type(error).__qualname__}: {first_line(error)}",
                   "was raised by the library", "its message says what it needs")


cdef str first_line(object error):
    """The first line of an error's text, since torch appends its C++ stack; and the second after Numba's heading."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no reason given"]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
