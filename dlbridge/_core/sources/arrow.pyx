"""Arrow's C interfaces: ``__arrow_c_device_array__``, ``__arrow_c_array__``, and a stream of chunks.

Only arrays of numbers without nulls are taken, bools of a byte each (the canonical extension type ``arrow.bool8``), and
lists of one length of them, which are axes. Arrow's memory is immutable, so it is read-only here.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, DLTensor, kDLCPU
from dlbridge._core.arrow_abi cimport (
    ARRAY_NAME,
    DEVICE_ARRAY_NAME,
    SCHEMA_NAME,
    ArrowArray,
    ArrowDeviceArray,
    ArrowSchema,
)
from dlbridge._core.block cimport (
    OWNS_BASE,
    PROTOCOL_ARROW,
    Managed,
    managed_checked,
    managed_data,
    managed_nbytes,
    managed_new,
    managed_own,
    managed_release,
    managed_set_row,
    managed_span,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host
from dlbridge._core.dtypes cimport find_name
from dlbridge._core.facts cimport ARROW_FORM
from dlbridge._core.request cimport Request
from dlbridge._core.sources.arrow_array cimport block_of, pair_of
from dlbridge._core.sources.arrow_schema cimport Description, hint_of, read_schema, refused
from dlbridge._core.sources.arrow_stream cimport take_stream
from dlbridge._core.sources.offer cimport Offer, new_offer

from dlbridge.errors import (
    ConversionError,
    CopyRequiredError,
    DLBridgeError,
    MissingLibraryError,
    full_name,
    refusal,
    shown,
)

# Makes a block of what a method of the producer returned.
ctypedef Managed* (*Take)(object answer, Offer offer, const Request* request) except NULL


cdef Offer offers(object holder, object facts, str attribute):
    cdef Offer offer
    if attribute == "__arrow_c_device_array__":
        return new_offer("arrow", acquire_device_array, facts)
    if attribute == "__arrow_c_array__":
        return new_offer("arrow", acquire_array, facts)
    offer = new_offer("arrow", acquire_array_stream, facts)
    offer.is_stream = True
    return offer


cdef object schema_of(object obj):
    """What ``__arrow_c_schema__`` gives, or None if it fails: the stream will then say what is wrong."""
    try:
        return obj.__arrow_c_schema__()
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None


cdef Managed* acquire_array(object obj, Offer offer, const Request* request) except? NULL:
    if offer.known & ARROW_FORM:
        return acquire_formed(obj, offer, request)
    return ask(obj, "__arrow_c_array__", take_array, offer, request)


cdef Managed* acquire_formed(object obj, Offer offer, const Request* request) except? NULL:
    """An array that has another form than Arrow says; its own protocol copies, and was declined with copy=False."""
    cdef Managed* flat
    cdef Managed* managed
    try:
        flat = ask(obj, "__arrow_c_array__", take_array, offer, request)
    except ConversionError as error:
        raise copy_required(obj, error.reason) from error
    if flat == NULL:
        return NULL
    try:
        form = offer.values[<int> ARROW_FORM](obj)
        if form is None:
            raise copy_required(obj, "its elements have another form in memory")
        managed = managed_new(PROTOCOL_ARROW, len(form[1]))
    except BaseException:
        managed_release(flat)
        raise
    managed_own(managed, OWNS_BASE, flat)
    return give_form(managed, flat, form)


cdef object copy_required(object obj, str reason):
    return refusal(CopyRequiredError, "arrow", "copy", False,
                   f"but {type(obj).__qualname__} can only be copied: {reason}", "pass copy=None")


cdef Managed* give_form(Managed* managed, const Managed* flat, tuple form) except NULL:
    """Put a block on the memory of another one, which it owns. On failure it is released."""
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef int64_t nbytes = managed_nbytes(flat)
    cdef int axis
    tensor.data = managed_data(flat)
    tensor.device = flat.abi.dl_tensor.device
    try:
        name, shape, strides, read_only = form
        managed_set_row(managed, find_name(name))
        for axis in range(tensor.ndim):
            tensor.shape[axis], tensor.strides[axis] = shape[axis], strides[axis]
    except BaseException:
        managed_release(managed)
        raise
    if read_only:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    managed = managed_checked(managed)
    if managed_span(managed).high_bytes <= nbytes:
        return managed
    managed_release(managed)
    raise refused("length", nbytes, f"bytes are fewer than shape {shape} has")


cdef Managed* acquire_device_array(object obj, Offer offer, const Request* request) except? NULL:
    return ask(obj, "__arrow_c_device_array__", take_device_array, offer, request)


cdef Managed* acquire_array_stream(object obj, Offer offer, const Request* request) except? NULL:
    cdef Description description
    if not offer.facts.records and hasattr(obj, "__arrow_c_schema__"):
        # What is refused for its type stays unread, since the producer may give its stream once.
        schema = schema_of(obj)
        if PyCapsule_IsValid(schema, SCHEMA_NAME):
            describe_capsule(schema, offer, &description)
    return ask(obj, "__arrow_c_stream__", take_stream, offer, request)


cdef Managed* ask(object obj, str name, Take take, Offer offer, const Request* request) except? NULL:
    method = getattr(obj, name, None)
    if method is None:
        return NULL
    try:
        answer = method()
    except (DLBridgeError, MemoryError, RecursionError, OSError):
        raise
    except ImportError as error:
        raise refusal(MissingLibraryError, "arrow", name, shown(type(obj), full_name), "needs pyarrow",
                      offer.facts.hint("uninstalled") or "pip install pyarrow") from error
    except Exception as error:
        if not offer.facts.records:
            raise
        raise refusal(ConversionError, "arrow", name, shown(type(obj), full_name), f"gives nothing: {error}",
                      hint_of(offer, "nothing", 0)) from error
    try:
        return take(answer, offer, request)
    except BaseException:
        # The capsules are released while the error is caught. Their destructors may be Python code, which would lose a
        # pending error.
        answer = None
        raise


cdef Managed* take_array(object answer, Offer offer, const Request* request) except NULL:
    cdef DLDevice cpu = DLDevice(kDLCPU, 0)
    cdef Description description
    schema, array = pair_of(answer, "__arrow_c_array__", ARRAY_NAME)
    describe_capsule(schema, offer, &description)
    return block_of(
        <ArrowArray*> PyCapsule_GetPointer(array, ARRAY_NAME), answer if request.peek else None, &description, cpu,
        True, offer)


cdef Managed* take_device_array(object answer, Offer offer, const Request* request) except NULL:
    cdef ArrowDeviceArray* given
    cdef Managed* managed
    cdef Description description
    cdef DLDevice device
    cdef bint is_ready
    schema, array = pair_of(answer, "__arrow_c_device_array__", DEVICE_ARRAY_NAME)
    given = <ArrowDeviceArray*> PyCapsule_GetPointer(array, DEVICE_ARRAY_NAME)
    device.device_type = given.device_type
    device.device_id = 0 if given.device_id == -1 else checked_id(given.device_id)
    # Pinned memory may have an event too.
    is_ready = is_host(device.device_type) and (device.device_type == kDLCPU or given.sync_event == NULL)
    describe_capsule(schema, offer, &description)
    managed = block_of(&given.array, answer if request.peek else None, &description, device, is_ready, offer)
    if request.peek or device.device_type == kDLCPU:
        return managed
    # The array owns the event, and the block owns the array now.
    return awaited(managed, (<void**> given.sync_event)[0] if given.sync_event != NULL else NULL)


cdef int32_t checked_id(int64_t device_id) except -1:
    if not 0 <= device_id < 1 << 31:
        raise refused("device_id", device_id, "is no number of a device")
    return <int32_t> device_id


cdef Managed* awaited(Managed* managed, void* event) except NULL:
    """Note the stream on which the memory is ready, after the event."""
    cdef DLDevice* device = &managed.abi.dl_tensor.device
    try:
        if has_streams(device.device_type):
            device_operations().set_producer_event(managed, event)
        elif event != NULL:
            raise refused("sync_event", device_name(device[0]), "has events that dlbridge cannot wait for")
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef int describe_capsule(object capsule, Offer offer, Description* out) except -1:
    return read_schema(<const ArrowSchema*> PyCapsule_GetPointer(capsule, SCHEMA_NAME), offer, out)
