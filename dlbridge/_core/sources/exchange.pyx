"""The C exchange API: a table of C functions on the type.

Subclasses inherit the table, which disregards what they add. So the table serves a type only if its library's facts
name exactly that type, or if a subclass is known to add nothing (native/torch). All others go through ``__dlpack__``.
"""

import sys

from cpython.object cimport PyObject, PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport (
    DLPACK_MAJOR_VERSION, EXCHANGE_NAME, STREAM_LEGACY_DEFAULT, DLDevice, DLManagedTensorVersioned, DLPackExchangeAPI,
    DLPackExchangeAPIHeader,
)
from dlbridge._core.block cimport PROTOCOL_EXCHANGE_API, Managed, managed_release, managed_take_versioned
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host, type_number
from dlbridge._core.pending cimport take_error
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer, new_offer, top_module

from dlbridge.errors import ConversionError, refusal

cdef extern from "Python.h":
    PyObject* _PyType_Lookup(PyTypeObject* kind, object name) noexcept


cdef Offer offers(object kind, object facts, str attribute):
    return offers_inherited(kind, facts) if is_exact(kind, facts.exchange) else None


cdef Offer offers_inherited(object kind, object facts):
    """The offer of a type that has or inherits the table. The caller knows that the table is right for a subclass."""
    cdef Offer offer
    cdef const DLPackExchangeAPI* api = find_exchange_api(kind)
    if api == NULL:
        return None
    offer = new_offer("exchange_api", acquire, facts)
    offer.api, offer.names_stream, offer.gradient_free = api, facts.names_stream, facts.gradient_free
    return offer


cdef bint is_exact(object kind, object name) except -1:
    """Whether a type is the one that has this full name. Modules are looked up, never imported."""
    if name is None:
        return False
    module, _, attribute = name.rpartition(".")
    return getattr(sys.modules.get(module), attribute, None) is kind


cdef const DLPackExchangeAPI* find_exchange_api(object kind) except? NULL:
    """A type's table of dlbridge's major version, or NULL. DLPack 1.3: newer tables chain to older ones."""
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
    if offer.gradient_free is not None and not request.detach:
        check_gradient(obj, offer)
    if offer.optional and not offer.names_stream and has_streams(type_number(obj.__dlpack_device__()[0])):
        return NULL             # __dlpack__ can be told the consumer's stream; the table names only the default one
    if offer.api.managed_tensor_from_py_object_no_sync(<void*> obj, &foreign) or foreign == NULL:
        raise failed_export(obj, take_error())
    managed = managed_take_versioned(PROTOCOL_EXCHANGE_API, foreign)
    if has_streams(managed.abi.dl_tensor.device.device_type) and not request.peek:
        try:
            device_operations().set_producer(managed, current_stream(managed, offer.api), None, False)
        except BaseException:
            managed_release(managed)
            raise
    return managed


cdef int check_gradient(object obj, Offer offer) except -1:
    """Refuse an array that takes part in a gradient, since the table exports it as if it did not."""
    if not getattr(obj, offer.gradient_free):
        raise refusal(ConversionError, top_module(type(obj)), offer.gradient_free, False,
                      "since a gradient would be lost, and writes bypass it", "pass detach=True, or x.detach()")


cdef int64_t current_stream(Managed* managed, const DLPackExchangeAPI* api) except? -2:
    """The library's current stream, on which the memory is ready."""
    cdef DLDevice device = managed.abi.dl_tensor.device
    cdef void* stream = NULL
    # No library says whose stream wrote pinned memory.
    if not is_host(device.device_type) and api.current_work_stream(device.device_type, device.device_id, &stream):
        raise take_error() or refusal(
            ConversionError, "exchange_api", "current_work_stream", device_name(device),
            "has no current stream, and no reason is given", "pass a DLPack capsule")
    return <int64_t> stream if stream != NULL else STREAM_LEGACY_DEFAULT


cdef object failed_export(object obj, object cause):
    """The error for an export that failed. Its cause is what the library raised, if anything (cuda.core does not)."""
    if isinstance(cause, (MemoryError, RecursionError)):
        return cause
    made = refusal(ConversionError, "exchange_api", "type", type(obj).__qualname__,
                   f"could not be exported: {cause or 'the library gives no reason'}",
                   "convert what it was made from")
    made.__cause__ = cause
    return made
