"""``__cuda_array_interface__``, versions 0 to 3."""

from cpython.long cimport PyLong_Check
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_READ_ONLY, STREAM_LEGACY_DEFAULT, STREAM_PER_THREAD_DEFAULT, STREAM_UNORDERED, DLDevice,
)
from dlbridge._core.block cimport (
    PROTOCOL_CUDA_ARRAY_INTERFACE, Managed, managed_checked, managed_own_object, managed_release,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.dtypes cimport NO_ROW, find_typestr, get_row
from dlbridge._core.request cimport LARGEST_HANDLE, Request, keeps_handle, stream_and_keeper
from dlbridge._core.sources.array_interface cimport new_from_interface, read_address, refuse_field
from dlbridge._core.sources.offer cimport Offer, element_row, new_offer, with_row

from dlbridge.errors import REPORT


cdef Offer offers(object holder, object facts, str attribute):
    cdef Offer offer = new_offer("cuda_array_interface", acquire, facts)
    offer.interface, offer.stream_object = facts.interface, facts.stream_object
    return offer


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef Managed* managed
    cdef void* address
    cdef bint read_only
    cdef int row
    cdef dict interface = read_interface(obj, offer)
    if interface is None:
        return NULL
    row = NO_ROW
    if not has_typestr(interface.get("typestr")):
        row = element_row(obj, offer)
        if row != NO_ROW:
            # bfloat16 and the like are "V2" here: bytes of that size, which with_row() names.
            interface["typestr"] = f"<u{get_row(row).item_bytes}"
        elif offer.optional:
            return NULL         # another protocol can name the dtype
    read_address(PROTOCOL_CUDA_ARRAY_INTERFACE, interface.get("data"), &address, &read_only)
    # Versions 0 and 1 did not say whether compact arrays have strides, so both None and given strides are correct.
    owner = (obj, interface)    # made first: if that fails, there is no block yet that could be lost
    managed = new_from_interface(
        PROTOCOL_CUDA_ARRAY_INTERFACE, interface.get("shape"), interface.get("typestr"), interface.get("strides"))
    managed.abi.dl_tensor.data = address
    if read_only:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    managed_own_object(managed, owner)
    managed = with_row(managed_checked(managed), row, offer)
    try:
        # The protocol does not say which device the memory is on; only the driver knows (pydlpack takes 0).
        device_operations().locate(managed)
        note_stream_entry(managed, obj, offer, interface)
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef dict read_interface(object obj, Offer offer):
    """The entries of an interface, or None if there is none. Those that describe the memory are not yet checked."""
    try:
        given = obj.__cuda_array_interface__ if offer.interface is None else offer.interface(obj)
    except AttributeError:
        return None
    if not isinstance(given, dict):
        raise _refused("__cuda_array_interface__", type(given).__qualname__, "is not a dict")
    interface = dict(given) if offer.interface is None else given
    check_entries(interface)
    return interface


cdef bint has_typestr(object typestr) except -1:
    cdef bint swapped
    return type(typestr) is not str or find_typestr(typestr, &swapped) >= 0


cdef int note_stream_entry(Managed* managed, object obj, Offer offer, dict interface) except -1:
    """Note the stream on which the memory is ready.

    From version 3 on, None says that no stream need wait. Earlier versions have no stream, and the default one is
    meant.
    """
    cdef int64_t stream = STREAM_LEGACY_DEFAULT
    cdef DLDevice device
    given = interface.get("stream")
    keeper = None
    if given is None:
        if interface.get("version", 0) >= 3:
            stream = STREAM_UNORDERED
        return device_operations().set_producer(managed, stream, None, False)
    stream = given
    if offer.stream_object is not None:
        device_operations().stream_device(managed, &device)
        keeper = stream_and_keeper(offer.stream_object(obj, device.device_id), &stream)
    elif offer.interface is not None and stream > STREAM_PER_THREAD_DEFAULT and keeps_handle(interface.get("keeper")):
        keeper = interface["keeper"]
    return device_operations().set_producer(managed, stream, keeper, False)


cdef int check_entries(dict interface) except -1:
    version = interface.get("version", 0)
    if not PyLong_Check(version) or version < 0:
        raise _refused("version", version, "is no version")
    mask = interface.get("mask")
    if mask is not None:
        raise refuse_field(PROTOCOL_CUDA_ARRAY_INTERFACE, "mask", type(mask).__qualname__,
                           "would be dropped, and masked values would pass for real ones", "fill it first")
    stream = interface.get("stream")
    if isinstance(stream, int) and type(stream) is not bool:
        # Only the number is read, since a subclass of int may define its own comparisons.
        stream = interface["stream"] = int.__int__(stream)
    if stream is not None and (not PyLong_Check(stream) or type(stream) is bool or not 0 <= stream <= LARGEST_HANDLE):
        raise _refused("stream", stream, "is no stream")
    if stream is not None and stream == 0:
        raise refuse_field(PROTOCOL_CUDA_ARRAY_INTERFACE, "stream", 0, "is ambiguous, and the protocol forbids it",
                           "use 1 for the legacy default stream or 2 for the per-thread one")


cdef object _refused(str field, object value, str wrong):
    return refuse_field(PROTOCOL_CUDA_ARRAY_INTERFACE, field, value, wrong, REPORT)
