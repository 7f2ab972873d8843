"""On which device an array is, and whether that is the one wanted.

``hosts`` is the number of devices that a library sees on the host.
"""

from dlbridge._core.abi cimport DLDevice, kDLCPU
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.devices.table cimport parse_device, same_device
from dlbridge._core.request cimport NOTHING_ASKED, Request
from dlbridge._core.sources.offer cimport Offer, refusal_by_facts
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type, unsupported


cdef bint is_on(object array, int hosts, const DLDevice* wanted) except -1:
    """Whether an array says that it is on one device. An array that says nothing is on the host."""
    cdef DLDevice actual
    find_device(array, hosts, &actual)
    return same_device(wanted, &actual) and not replicas_of(array, <Offer> offers_for_type(type(array))[0])


cdef int find_device(object array, int hosts, DLDevice* out) except -1:
    """Find the device of an array.

    It is the one of ``__dlpack_device__``; without that, the one of ``__cuda_array_interface__``, which is all that
    Numba's arrays have; otherwise the host. DLPack has one host, of which some libraries number several devices.
    """
    cdef Offer offer = <Offer> offers_for_type(type(array))[0]
    if offer.locate != NULL and offer.locate(array, offer, out):
        return 0
    try:
        device_by_protocol(array, out)
        if hosts > 1 and out.device_type == kDLCPU and offer.facts.host_number is not None:
            out.device_id = offer.facts.host_number(array)
    except Exception as error:
        replicas = replicas_of(array, offer)
        if replicas:
            return find_device(replicas[0], hosts, out)
        refused = (unsupported(array, offer.facts) if offer.facts.why_unasked() else
                   refusal_by_facts(array, offer.facts, "convert"))
        if refused is None:
            raise
        raise refused from error
    return 0


cdef object replicas_of(object array, Offer offer):
    """An array on each of several devices that have all of it; or nothing."""
    return () if offer.facts.replicas is None else offer.facts.replicas(array)


cdef int device_by_protocol(object array, DLDevice* out) except -1:
    """Find the device that an array's protocols name."""
    cdef Request request = NOTHING_ASKED
    cdef Managed* managed
    if hasattr(type(array), "__dlpack_device__"):
        return parse_device(tuple(array.__dlpack_device__()), out)
    out[0] = DLDevice(kDLCPU, 0)
    if hasattr(type(array), "__cuda_array_interface__"):
        request.detach = request.peek = True
        managed = acquire_by(offers_for_type(type(array)), array, &request)
        out[0] = managed.abi.dl_tensor.device
        managed_release(managed)
    return 0


cdef bint is_on_gpu(object array) except -1:
    """Whether an array's memory is on a device with streams.

    torch's tensor type has the interface for tensors of the CPU too, and for those without memory.
    """
    return hasattr(type(array), "__cuda_array_interface__") and getattr(array, "is_cuda", True)
