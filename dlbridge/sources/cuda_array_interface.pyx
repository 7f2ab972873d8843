"""``__cuda_array_interface__``, versions 0 to 3."""

from cpython.long cimport PyLong_Check

from dlbridge.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, kDLCUDA
from dlbridge.managed cimport (
    PROTOCOL_CUDA_ARRAY_INTERFACE,
    Managed,
    managed_checked,
    managed_own_object,
    managed_release,
)
from dlbridge.request cimport Request
from dlbridge.sources.interface cimport new_from_interface, read_address, refuse_field
from dlbridge.sources.offer cimport Offer, new_offer

from dlbridge.errors import REPORT, DeviceError, refusal


cdef Offer offers(object kind):
    return new_offer("cuda_array_interface", acquire) if hasattr(kind, "__cuda_array_interface__") else None


cdef Offer offers_instance(object obj):
    return new_offer("cuda_array_interface", acquire) if hasattr(obj, "__cuda_array_interface__") else None


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef Managed* managed
    cdef void* address
    cdef bint read_only
    try:
        interface = obj.__cuda_array_interface__
    except AttributeError:
        return NULL
    if not isinstance(interface, dict):
        raise _refused("__cuda_array_interface__", type(interface).__qualname__, "is not a dict")
    interface = dict(interface)
    check_entries(interface)
    read_address(PROTOCOL_CUDA_ARRAY_INTERFACE, interface.get("data"), &address, &read_only)
    # Versions 0 and 1 left the strides of compact arrays unspecified: both None and given ones are right.
    managed = new_from_interface(
        PROTOCOL_CUDA_ARRAY_INTERFACE, interface.get("shape"), interface.get("typestr"), interface.get("strides"))
    managed.abi.dl_tensor.data = address
    if read_only:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    managed.abi.dl_tensor.device.device_type = kDLCUDA
    managed_own_object(managed, (obj, interface))
    managed = managed_checked(managed)
    managed_release(managed)
    # The protocol does not say which device the memory is on; only the driver knows (pydlpack takes 0, and is wrong).
    raise refusal(DeviceError, "cuda_array_interface", "'data'", f"{<size_t> address:#x}",
                  "is on a device that only the CUDA driver can tell, and no driver is loaded",
                  "pass an object with __dlpack__, which names its device")


cdef int check_entries(dict interface) except -1:
    version = interface.get("version", 0)
    if not PyLong_Check(version) or version < 0:
        raise _refused("version", version, "is no version")
    mask = interface.get("mask")
    if mask is not None:
        raise refuse_field(PROTOCOL_CUDA_ARRAY_INTERFACE, "mask", type(mask).__qualname__,
                           "would be dropped, and masked values would pass for real ones", "fill it first")
    stream = interface.get("stream")
    if stream is not None and (not PyLong_Check(stream) or stream < 0):
        raise _refused("stream", stream, "is no stream")
    if stream is not None and stream == 0:
        raise refuse_field(PROTOCOL_CUDA_ARRAY_INTERFACE, "stream", 0, "is ambiguous, and the protocol forbids it",
                           "use 1 for the legacy default stream or 2 for the per-thread one")
    return 0


cdef object _refused(str field, object value, str wrong):
    return refuse_field(PROTOCOL_CUDA_ARRAY_INTERFACE, field, value, wrong, REPORT)
