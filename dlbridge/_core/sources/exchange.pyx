"""The C exchange API: a table of C functions on the type (torch, Paddle, cuda.core, dlbridge's own Tensor).

Subclasses inherit the table with its disregard for what they add, so only the exact types of ALLOWED go this way; all
others go through ``__dlpack__``.
"""

import sys

from cpython.object cimport PyObject, PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport (
    DLPACK_MAJOR_VERSION,
    EXCHANGE_NAME,
    STREAM_LEGACY_DEFAULT,
    DLDevice,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLPackExchangeAPIHeader,
    DLTensor,
)
from dlbridge._core.devices.table cimport device_name, device_operations, has_streams, is_host
from dlbridge._core.managed cimport (
    PROTOCOL_EXCHANGE_API,
    Managed,
    managed_from_tensor,
    managed_own_object,
    managed_release,
    managed_take_versioned,
    take_error,
)
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer, new_offer, top_module
from dlbridge._core.sources.torch cimport is_own_stream, is_torch, mark_torch, prepare_questions, torch_refusal

from dlbridge.errors import ConversionError, refusal

cdef extern from "Python.h":
    PyObject* _PyType_Lookup(PyTypeObject* kind, object name) noexcept


# Module and name of each type that may go the raw way. Modules are looked up, never imported.
ALLOWED = (
    ("torch", "Tensor"),
    ("torch.nn.parameter", "Parameter"),
    ("paddle", "Tensor"),
    ("paddle.base.framework", "EagerParamBase"),
    ("cuda.core._memoryview", "StridedMemoryView"),
    ("dlbridge.tensor", "Tensor"),
)
# Libraries whose table names the stream that memory is ready on. Of the others __dlpack__ is told the consumer's, or
# all would wait for the default one.
NAMES_STREAM = {"torch", "paddle"}
# Of libraries whose table exports what takes part in a gradient as if it did not: the attribute that tells.
GRADIENT_FREE = {"paddle": "stop_gradient"}


cdef Offer offers(object kind):
    cdef Offer offer
    cdef const DLPackExchangeAPI* api
    if not any([getattr(sys.modules.get(module), name, None) is kind for module, name in ALLOWED]):
        return None
    api = find_exchange_api(kind)
    if api == NULL:
        return None
    offer = new_offer("exchange_api", acquire)
    offer.api = api
    offer.torch = is_torch(kind)
    offer.names_stream = top_module(kind) in NAMES_STREAM
    offer.gradient_free = GRADIENT_FREE.get(top_module(kind))
    if offer.torch:
        prepare_questions(kind)
        offer.rebound = kind.__name__ == "Parameter"
        if api.dltensor_from_py_object_no_sync != NULL:
            offer.acquire = acquire_borrowed
    return offer


cdef const DLPackExchangeAPI* find_exchange_api(object kind) except? NULL:
    """The table of a type, of our major version (DLPack 1.3: newer ones chain to older ones), or NULL."""
    cdef const DLPackExchangeAPIHeader* header
    cdef PyObject* found = _PyType_Lookup(<PyTypeObject*> kind, "__dlpack_c_exchange_api__")
    if found == NULL or not PyCapsule_IsValid(<object> found, EXCHANGE_NAME):
        return NULL
    header = <const DLPackExchangeAPIHeader*> PyCapsule_GetPointer(<object> found, EXCHANGE_NAME)
    while header != NULL and header.version.major != DLPACK_MAJOR_VERSION:
        header = header.prev_api
    return <const DLPackExchangeAPI*> header


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef DLManagedTensorVersioned* foreign = NULL
    cdef Managed* managed
    cdef object exported = obj
    if offer.torch and (offer.rebound or request.detach):
        exported = obj.detach()
    if offer.gradient_free is not None and not request.detach and not getattr(obj, offer.gradient_free):
        raise refusal(ConversionError, top_module(type(obj)), offer.gradient_free, False,
                      "since a gradient would be lost, and writes bypass it", "pass detach=True, or x.detach()")
    if offer.optional and not offer.names_stream and has_streams(obj.__dlpack_device__()[0]):
        return NULL
    if offer.api.managed_tensor_from_py_object_no_sync(<void*> exported, &foreign) or foreign == NULL:
        raise _refused(obj, offer)
    managed = managed_take_versioned(PROTOCOL_EXCHANGE_API, foreign)
    if has_streams(managed.abi.dl_tensor.device.device_type) and not request.peek:
        set_stream(managed, exported, offer)
    return mark_torch(managed, obj, request) if offer.torch else managed


cdef Managed* acquire_borrowed(object obj, Offer offer, const Request* request) except? NULL:
    """From torch, which has no flags to tell: its borrowed view, and a reference to the tensor.

    torch's managed export would hold the tensor's C++ half, for twice the price, and no more memory: what is put under
    a tensor later (``.data =``, ``resize_``) takes the old memory from under either. What the view points to is copied
    before anything else can run.
    """
    cdef DLTensor view
    cdef Managed* managed
    cdef object exported = obj
    if offer.rebound or request.detach:
        # Not the memory but the tensor is held, whose memory module.half() or .data = would free under the consumer.
        exported = obj.detach()
    if offer.api.dltensor_from_py_object_no_sync(<void*> exported, &view):
        raise _refused(obj, offer)
    managed = managed_from_tensor(PROTOCOL_EXCHANGE_API, &view, 0)
    managed_own_object(managed, exported)
    if has_streams(view.device.device_type) and not request.peek:
        set_stream(managed, exported, offer)
    return mark_torch(managed, obj, request)


cdef int set_stream(Managed* managed, object exported, Offer offer) except -1:
    """The memory is ready on the library's current stream; on failure the block is released."""
    cdef DLDevice device = managed.abi.dl_tensor.device
    cdef bint pinned = is_host(device.device_type)      # of which no library says whose stream wrote it
    cdef void* stream = NULL
    try:
        if not pinned and offer.api.current_work_stream(device.device_type, device.device_id, &stream):
            raise take_error() or refusal(
                ConversionError, "exchange_api", "current_work_stream", device_name(device),
                "has no current stream, and no reason is given", "pass a DLPack capsule")
        lasts = stream != NULL and offer.torch and is_own_stream(device.device_id)
        return device_operations().set_producer(
            managed, <int64_t> stream if stream != NULL else STREAM_LEGACY_DEFAULT, None, lasts,
            exported if offer.torch and not pinned else None)
    except BaseException:
        managed_release(managed)
        raise


cdef object _refused(object obj, Offer offer):
    """What the export raised, if it raised at all (cuda.core sets no exception), in dlbridge's words."""
    cause = take_error()
    if isinstance(cause, (MemoryError, RecursionError)):
        return cause
    if offer.torch:
        refused = torch_refusal(obj)
    else:
        refused = refusal(ConversionError, "exchange_api", "type", type(obj).__qualname__,
                          f"could not be exported: {cause or 'the library gives no reason'}",
                          "convert what it was made from")
    refused.__cause__ = cause
    return refused
