"""torch.Tensor and its subclasses: what a tensor carries beside its memory.

It can carry a gradient, and lazy bits that change what the memory means. torch's exchange API checks none of them, and
no export of torch 2.13 checks the negative bit: a tensor that has it arrives everywhere with the wrong sign.
"""

import sys

from libc.stdint cimport uint32_t

from dlbridge._core.abi cimport DLManagedTensorVersioned, DLTensor, kDLBfloat, kDLComplex, kDLFloat
from dlbridge._core.block cimport (
    CONJUGATED,
    NEGATED,
    PROTOCOL_EXCHANGE_API,
    Managed,
    managed_data,
    managed_fasten,
    managed_keep,
    managed_own_object,
    managed_release,
    managed_set_row,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams, is_host
from dlbridge._core.dtypes cimport find_name
from dlbridge._core.native cimport libtorch
from dlbridge._core.native.libtorch cimport FAILED, GRADIENT, said_of
from dlbridge._core.ownership cimport OWNS_LOOSE, set_fasten
from dlbridge._core.pending cimport raise_pending, take_error
from dlbridge._core.request cimport COPY_ALWAYS, Request
from dlbridge._core.sources cimport dlpack, exchange
from dlbridge._core.sources.offer cimport Offer, facts_of
from dlbridge._core.validation cimport managed_from_tensor, managed_take_versioned

from dlbridge.errors import ConversionError, UnsupportedError, refusal


# A tensor that is fastened gives its place to its storage, since ``.data =`` puts another storage under a tensor.
# tensor.numpy() holds no less: an alias of the tensor, whose storage cannot be resized any more.
set_fasten(libtorch.kept_storage)

# What an export leaves out.
ctypedef struct Bare:
    int row                     # of the dtype table, if the export has bytes instead; otherwise -1
    uint32_t marks              # Mark


cdef Offer offers(object kind, object facts):
    """Offer a plain tensor by the exchange API, and a subclass, or a tensor before torch 2.10, by ``__dlpack__``."""
    cdef Offer offer
    if not is_torch(kind):
        return None
    offer = exchange.offers(kind, facts)
    if offer is not None:
        libtorch.find_functions()
        offer.acquire = acquire_managed if offer.api.dltensor_from_py_object_no_sync == NULL else acquire_borrowed
    else:
        method = getattr(kind, "__dlpack__", None)
        if method is None:
            return None
        offer = dlpack.offer_method(method, facts)
        offer.acquire = refuse_type if facts.find("no_memory") else acquire_subclass
    offer.sole = True           # no other protocol asks whether there is a gradient
    return offer


cdef bint is_torch(object kind):
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return isinstance(tensor, type) and issubclass(kind, tensor)


# ---- plain tensors ---------------------------------------------------------------------------------------------------

cdef Managed* acquire_borrowed(object obj, Offer offer, const Request* request) except? NULL:
    """Make a block from torch's borrowed view, with a reference to the tensor.

    torch's managed export would hold the tensor's C++ half instead. That costs twice as much, and keeps no more memory
    alive: when other memory is put under a tensor later (``.data =``, ``resize_``), both lose the old memory. So the
    tensor is a loose owner. What the view points to is copied before other code can run.
    """
    cdef DLTensor view
    cdef Managed* managed
    if offer.api.dltensor_from_py_object_no_sync(<void*> obj, &view):
        raise refused(obj, offer.facts)
    managed = managed_from_tensor(PROTOCOL_EXCHANGE_API, &view, 0)
    managed_own_object(managed, obj)
    managed.owns = OWNS_LOOSE
    if has_streams(view.device.device_type) and not request.peek:
        managed_fasten(managed)
        note_producer(managed, <object> managed.abi.manager_ctx, offer)
    return marked(managed, obj, request)


cdef Managed* acquire_managed(object obj, Offer offer, const Request* request) except? NULL:
    """Make a block from torch's managed export. An exchange API without the borrowed view has only that."""
    cdef DLManagedTensorVersioned* foreign = NULL
    cdef Managed* managed
    if offer.api.managed_tensor_from_py_object_no_sync(<void*> obj, &foreign) or foreign == NULL:
        raise refused(obj, offer.facts)
    managed = managed_take_versioned(PROTOCOL_EXCHANGE_API, foreign)
    keep_storage(managed, obj, request)
    if has_streams(managed.abi.dl_tensor.device.device_type) and not request.peek:
        note_producer(managed, obj, offer)
    return marked(managed, obj, request)


cdef int keep_storage(Managed* managed, object tensor, const Request* request) except -1:
    """Keep the storage that a tensor's export is in, beside what the export itself keeps.

    On failure the block is released.
    """
    if request.peek or request.copy == COPY_ALWAYS:
        return 0
    try:
        storage = tensor.untyped_storage()
        start = <size_t> managed_data(managed) - <size_t> storage.data_ptr()
        if not 0 <= start <= storage.nbytes():
            return 0            # a subclass exports the memory of another tensor
        libtorch.keep_size(storage)
    except Exception:
        return 0                # a subclass that has no storage, and keeps its memory by itself
    return managed_keep(managed, storage)


cdef int note_producer(Managed* managed, object keeper, Offer offer) except -1:
    """Note that the memory is ready on torch's current stream, and how torch's allocator is told of other streams.

    ``keeper`` is the tensor, or its storage.

    On failure the block is released.
    """
    cdef bint pinned = is_host(managed.abi.dl_tensor.device.device_type)
    cdef bint lasts
    try:
        lasts = not pinned and libtorch.is_own_stream(managed.abi.dl_tensor.device.device_id)
    except BaseException:
        managed_release(managed)
        raise
    exchange.note_producer(managed, offer.api, lasts)
    return 0 if pinned else device_operations().set_allocator(managed, record_stream, keeper)


cdef int record_stream(object keeper) except -1:
    """Tell torch's allocator that torch's own current stream uses the memory.

    The allocator reuses memory in the order of the stream that it was allocated for, and of the streams that it was
    told of. torch's current stream waits for the consumer's stream when the consumer lets go. The allocator must not be
    told of the consumer's stream: it asks its streams when the memory is freed, and a foreign stream may be gone by
    then, which ends the process.
    """
    torch = sys.modules["torch"]
    tensor = keeper
    if not isinstance(keeper, torch.Tensor):
        tensor = torch.empty(0, dtype=torch.uint8, device=keeper.device).set_(keeper)
    tensor.record_stream(torch.cuda.current_stream(keeper.device))
    return 0


cdef Managed* marked(Managed* managed, object tensor, const Request* request) except NULL:
    """Refuse a gradient unless the caller wants to drop it, and mark the lazy bits, which place resolves.

    On failure the block is released.
    """
    cdef uint32_t said = said_of(tensor)
    cdef int code
    if not said:
        return managed
    if said & FAILED:
        managed_release(managed)
        raise_pending()
    if said & GRADIENT and not request.detach:
        managed_release(managed)
        raise _gradient()
    code = managed.abi.dl_tensor.dtype.code
    if said & (NEGATED | CONJUGATED) and code != kDLFloat and code != kDLComplex and code != kDLBfloat:
        managed_release(managed)
        raise _negative_integers()
    managed.marks |= said & (NEGATED | CONJUGATED)
    return managed


# ---- subclasses, and torch before 2.10 -------------------------------------------------------------------------------

cdef Managed* acquire_subclass(object obj, Offer offer, const Request* request) except? NULL:
    cdef Managed* managed
    cdef Offer plain
    cdef Bare bare = Bare(-1, 0)
    obj = prepare_subclass(obj, request)
    facts = facts_of(type(obj))
    if exchange.offers(type(obj), facts) is not None:
        plain = offers(type(obj), facts)
        return plain.acquire(obj, plain, request)
    if exchange.find_exchange_api(type(obj)) == NULL:
        obj = bare_memory(obj, offer, &bare)
    elif obj.is_neg():
        bare.marks = NEGATED
    managed = dlpack.acquire(obj, offer, request)
    if managed != NULL:
        if bare.row >= 0:
            managed_set_row(managed, bare.row)
        managed.marks |= bare.marks
        keep_storage(managed, obj, request)
    return managed


cdef Managed* refuse_type(object obj, Offer offer, const Request* request) except? NULL:
    raise refusal(UnsupportedError, "torch", "type", type(obj).__qualname__, "has a shape but no memory",
                  offer.facts.way_out("no_memory"))


cdef object prepare_subclass(object tensor, const Request* request):
    """A tensor that ``__dlpack__`` exports correctly.

    The subclass's own methods are asked, since a subclass can answer differently from the tensor that libtorch sees.
    """
    if tensor.requires_grad:
        if not request.detach:
            raise _gradient()
        tensor = tensor.detach()
    if tensor.is_neg() or tensor.is_conj():
        # The subclass's export refuses the conjugate bit and forgets the negative bit. The memory of the plain tensor
        # can be marked.
        return tensor.as_subclass(sys.modules["torch"].Tensor)
    return tensor


cdef object bare_memory(object tensor, Offer offer, Bare* out):
    """A tensor that ``__dlpack__`` can export before torch 2.10, which has no exchange API; and what the export lacks.

    ``__dlpack__`` forgets the negative bit, as it still does in torch 2.13, and refuses the conjugate bit and types of
    one byte that it does not know.
    """
    if any([getattr(tensor, fact.value, False) for fact in offer.facts.every("refused")]):
        raise refusal_of(tensor, offer.facts)
    if tensor.is_neg():
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise _negative_integers()
        out.marks |= NEGATED
    if tensor.is_conj():
        out.marks |= CONJUGATED
        tensor = tensor.conj()          # the same memory, without the bit
    if tensor.element_size() == 1 and tensor.is_floating_point():
        out.row = find_name(str(tensor.dtype).partition(".")[2])
        if out.row < 0:
            raise refusal_of(tensor, offer.facts)
        tensor = tensor.view(sys.modules["torch"].uint8)
    return tensor


def _negative_integers():
    return refusal(ConversionError, "torch", "is_neg", True, "of integers has no sign bit to flip",
                   "pass x.resolve_neg()")


def _gradient():
    return refusal(ConversionError, "torch", "requires_grad", True, "would be lost, and writes bypass autograd",
                   "pass detach=True, or x.detach()")


cdef object refusal_of(object tensor, object facts):
    """The error that says why torch could not export a tensor."""
    for fact in facts.every("refused"):
        if getattr(tensor, fact.value, False):
            return refusal(UnsupportedError, "torch", fact.value, True, fact.words, facts.way_out(fact.value))
    return refusal(UnsupportedError, "torch", "type",
                   f"{type(tensor).__qualname__} of {getattr(tensor, 'dtype', 'unknown dtype')}",
                   "could not be exported", "functorch wrappers and torch-only dtypes have no DLPack form; x.clone() "
                   "or x.to(dtype) outside of the transform has")


cdef object refused(object obj, object facts):
    """The error for an export that failed. Its cause is what torch raised."""
    cause = take_error()
    if isinstance(cause, (MemoryError, RecursionError)):
        return cause
    made = refusal_of(obj, facts)
    made.__cause__ = cause
    return made
