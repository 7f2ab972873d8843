"""torch.Tensor and its subclasses: what a tensor carries beside its memory.

It can carry a gradient, and lazy bits that change what the memory means. torch's exchange API checks none of them, and
no export of torch 2.13 checks the negative bit: a tensor that has it arrives everywhere with the wrong sign.
"""

import sys
from functools import partial

from libc.stdint cimport int64_t, uint32_t

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_READ_ONLY, STREAM_LEGACY_DEFAULT, DLDataType, DLDevice, DLManagedTensorVersioned, DLTensor,
    kDLBfloat, kDLCPU, kDLComplex, kDLFloat, kDLUInt,
)
from dlbridge._core.block cimport (
    CONJUGATED, NEGATED, NOT_YET_OWNED, PROTOCOL_EXCHANGE_API, Managed, managed_data, managed_describe,
    managed_from_tensor, managed_keep, managed_own_object, managed_release, managed_set_row, managed_take_versioned,
    set_find_storage,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams, is_host, parse_device
from dlbridge._core.dtypes cimport find_name, get_row
from dlbridge._core.layout cimport MAX_NDIM
from dlbridge._core.native cimport libtorch
from dlbridge._core.native.libtorch cimport FAILED, GRADIENT, TRACED, is_lazy_clone, state_of
from dlbridge._core.pending cimport raise_pending, take_error
from dlbridge._core.request cimport COPY_ALWAYS, COPY_UNLESS_CONSTANT, Request
from dlbridge._core.sources cimport dlpack, exchange
from dlbridge._core.sources.offer cimport Offer, facts_of, refusal_by_facts

from dlbridge.errors import ConversionError, UnsupportedError, refusal


# The storage takes the place of the tensor, since ``.data =`` puts another storage under a tensor.
# tensor.numpy() does the same: it keeps an alias of the tensor, whose storage cannot be resized any more.
set_find_storage(libtorch.storage_object)

# What an export leaves out.
ctypedef struct Bare:
    int row                     # of the dtype table, if the export has bytes instead; otherwise -1
    uint32_t marks              # Mark


cdef Offer offers(object kind, object facts, str attribute):
    """Offer a plain tensor by the exchange API, and a subclass, or a tensor before torch 2.10, by ``__dlpack__``."""
    cdef Offer offer
    cdef DLDevice device
    if not is_torch(kind):
        return None
    offer = exchange.offers(kind, facts, None)
    if offer is None and facts.exchange and adds_nothing(kind) and not facts.no_memory:
        offer = exchange.offers_inherited(kind, facts)
    if offer is not None:
        libtorch.find_functions()
        offer.acquire = acquire_managed
        if offer.api.dltensor_from_py_object_no_sync != NULL:
            offer.acquire = acquire_borrowed
            offer.describe = describe
            offer.keep = libtorch.storage_object
            offer.find_device = device_of_array
    else:
        method = getattr(kind, "__dlpack__", None)
        if method is None:
            return None
        offer = dlpack.offer_method(method, facts)
        offer.acquire = refuse_type if facts.no_memory or facts.container_functions(kind) else acquire_subclass
    offer.exclusive = True           # no other protocol asks whether there is a gradient
    torch = sys.modules["torch"]
    offer.whole_bytes = (getattr(torch, "uint8", None), getattr(torch, "int8", None))
    if facts.owned_on is not None:
        parse_device(facts.owned_on, &device)
        offer.owned_on = device.device_type
    return offer


# What a subclass may answer in another way than the tensor that it is.
cdef tuple ANSWERS = (
    "__torch_dispatch__", "__dlpack__", "__dlpack_device__", "__dlpack_c_exchange_api__", "__getattribute__",
    "__getattr__", "requires_grad", "is_neg", "is_conj", "detach", "data", "data_ptr", "untyped_storage", "storage",
    "device", "dtype", "shape", "size", "stride",
)


cdef bint adds_nothing(object kind) except -1:
    """Whether a subclass leaves to torch.Tensor all questions about its memory, so torch's exchange API serves it."""
    torch = sys.modules["torch"]
    disabled = getattr(torch._C, "_disabled_torch_function_impl", None)
    for base in kind.__mro__:
        if base is torch.Tensor:
            return True
        own = vars(base)
        if own.get("__torch_function__", disabled) is not disabled or [name for name in ANSWERS if name in own]:
            return False
    return False


cdef bint is_torch(object kind):
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return isinstance(tensor, type) and issubclass(kind, tensor)


cdef bint device_of_array(object obj, Offer offer, DLDevice* out) noexcept:
    cdef DLTensor view
    if is_lazy_clone(obj):
        return False            # the view would copy it
    if offer.api.dltensor_from_py_object_no_sync(<void*> obj, &view):
        take_error()
        return False
    out[0] = view.device
    return True


cdef bint describe(object obj, Offer offer, Managed* out, int64_t* room) noexcept:
    cdef DLTensor view
    if is_lazy_clone(obj):
        return False
    if offer.api.dltensor_from_py_object_no_sync(<void*> obj, &view) or state_of(obj):
        take_error()
        return False
    return view.device.device_type == kDLCPU and 0 <= view.ndim <= MAX_NDIM and (
        not managed_describe(out, PROTOCOL_EXCHANGE_API, &view, 0, room)) and (
        not is_byte(view.dtype) or has_whole_bytes(obj, offer))


cdef inline bint is_byte(DLDataType dtype) noexcept:
    """Whether it is int8 or uint8, as which torch also exports dtypes of fewer bits."""
    return dtype.bits == 8 and dtype.code <= kDLUInt


cdef bint has_whole_bytes(object tensor, Offer offer) noexcept:
    try:
        return tensor.dtype in offer.whole_bytes
    except Exception:
        return False


# ---- plain tensors ---------------------------------------------------------------------------------------------------

cdef Managed* acquire_borrowed(object obj, Offer offer, const Request* request) except? NULL:
    """Make a block from torch's borrowed view, with a reference to the tensor.

    torch's managed export would hold the tensor's C++ half instead. That costs twice as much, and keeps no more memory
    alive: when other memory is put under a tensor later (``.data =``, ``resize_``), both lose the old memory. So the
    tensor is owned first, and its storage once the memory is to be shared. What the view points to is copied before
    other code can run.
    """
    cdef DLTensor view
    cdef Managed* managed
    if is_lazy_clone(obj):
        return acquire_lazy_clone(obj, offer, request)
    if offer.api.dltensor_from_py_object_no_sync(<void*> obj, &view):
        raise failed_export(obj, offer.facts)
    if view.device.device_type == offer.owned_on:
        return acquire_managed(obj, offer, request)
    managed = managed_from_tensor(PROTOCOL_EXCHANGE_API, &view, 0)
    if view.device.device_type != kDLCPU and has_streams(view.device.device_type) and not request.peek:
        note_current_stream(managed, obj, offer, True)
    else:
        managed_own_object(managed, obj)
        managed.owns = NOT_YET_OWNED
    return marked(managed, obj, offer, request)


cdef Managed* acquire_managed(object obj, Offer offer, const Request* request) except? NULL:
    """Make a block from torch's managed export. An exchange API without the borrowed view has only that."""
    cdef DLManagedTensorVersioned* foreign = NULL
    cdef Managed* managed
    if is_lazy_clone(obj):
        return acquire_lazy_clone(obj, offer, request)
    if offer.api.managed_tensor_from_py_object_no_sync(<void*> obj, &foreign) or foreign == NULL:
        raise failed_export(obj, offer.facts)
    managed = managed_take_versioned(PROTOCOL_EXCHANGE_API, foreign)
    keep_storage(managed, obj, request)
    if has_streams(managed.abi.dl_tensor.device.device_type) and not request.peek:
        note_current_stream(managed, obj, offer, False)
    return marked(managed, obj, offer, request)


cdef Managed* acquire_lazy_clone(object tensor, Offer offer, const Request* request) except NULL:
    """Make a read-only block over memory that several tensors share until one of them is written.

    An export counts as a write, and makes torch copy. The block owns another lazy clone instead, which nobody sees and
    so nobody writes: the memory stays as it is.
    """
    cdef int64_t shape[MAX_NDIM]
    cdef int64_t strides[MAX_NDIM]
    cdef DLTensor view
    cdef Managed* managed
    clone, address, start, device, dtype, sizes, steps = libtorch.unseen(partial(_look_at_lazy_clone, tensor))
    cdef int row = find_name(str(dtype).partition(".")[2])
    if row < 0 or get_row(row).subbyte:
        raise _lacks_dtype(dtype, offer.facts)
    if len(sizes) > MAX_NDIM:
        raise refusal_of(tensor, offer.facts)
    view.data = <void*> <size_t> address
    view.byte_offset = start * get_row(row).item_bytes
    view.device.device_type, view.device.device_id = device
    view.dtype = get_row(row).dlpack
    view.ndim = len(sizes)
    view.shape, view.strides = shape, strides
    for axis in range(view.ndim):
        shape[axis], strides[axis] = sizes[axis], steps[axis]
    owner = (tensor, clone)     # made first: if that fails, there is no block yet that could be lost
    managed = managed_from_tensor(PROTOCOL_EXCHANGE_API, &view, DLPACK_FLAG_BITMASK_READ_ONLY)
    managed_own_object(managed, owner)
    if has_streams(view.device.device_type) and not request.peek:
        note_current_stream(managed, tensor, offer, False)
    return marked(managed, tensor, offer, request)


def _look_at_lazy_clone(tensor):
    """Another lazy clone of the whole storage, its address, and where and how the tensor lies in it."""
    torch = sys.modules["torch"]
    alias = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    return (torch._lazy_clone(alias), torch._C._data_address(alias), tensor.storage_offset(),
            tensor.__dlpack_device__(), tensor.dtype, tensor.size(), tensor.stride())


cdef int keep_storage(Managed* managed, object tensor, const Request* request) except -1:
    """Keep the storage that a tensor's export is in, beside what the export itself keeps.

    On failure the block is released.
    """
    if request.peek or request.copy in (COPY_ALWAYS, COPY_UNLESS_CONSTANT):     # it is copied: no tensor is constant
        return 0
    try:
        storage = find_storage(tensor, managed)
        if storage is None:
            return 0
        libtorch.keep_size(storage)
    except BaseException:
        managed_release(managed)
        raise
    return managed_keep(managed, storage)


cdef object find_storage(object tensor, const Managed* managed):
    """The storage that a tensor's export is in.

    None of a subclass that exports the memory of another tensor, or that has no storage and keeps its memory by itself.
    """
    try:
        storage = tensor.untyped_storage()
        start = <size_t> managed_data(managed) - <size_t> storage.data_ptr()
        return storage if 0 <= start <= storage.nbytes() else None
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None


cdef int note_current_stream(Managed* managed, object tensor, Offer offer, bint owns_storage) except -1:
    """Note that the memory is ready on torch's current stream, and how torch's allocator is told of other streams.

    The block gets the storage of the tensor as its owner, if it is to own that. On failure it is released.
    """
    cdef bint pinned = is_host(managed.abi.dl_tensor.device.device_type)
    cdef int64_t stream
    cdef bint lasts
    cdef object keeper = tensor
    try:
        if owns_storage:
            keeper = libtorch.storage_object(tensor)
            managed_own_object(managed, keeper)
        stream = exchange.current_stream(managed, offer.api)
        lasts = not pinned and libtorch.is_own_stream(managed.abi.dl_tensor.device.device_id, stream)
        device_operations().set_producer(managed, stream, None, lasts)
        if lasts:
            device_operations().set_allocator(managed, record_stream, keeper, stream)
    except BaseException:
        managed_release(managed)
        raise


cdef int record_stream(object keeper, int64_t stream) except -1:
    """Tell torch's allocator that a stream of torch's own uses the memory, the one that was current at the export.

    The allocator reuses memory in the order of the stream that it was allocated for, and of the streams that it was
    told of. torch's stream waits for the consumer's stream at the release. The allocator must not be told of
    the consumer's stream, nor of an external one that is torch's current stream: it asks its streams when the memory is
    freed, and a foreign stream may be gone by then, which ends the process.
    """
    libtorch.unseen(partial(_record_stream, keeper, stream))


cdef dict streams = {}          # torch's own streams, which last, by the numbers of device and stream


def _record_stream(keeper, stream):
    torch = sys.modules["torch"]
    tensor = keeper
    if not isinstance(keeper, torch.Tensor):
        tensor = torch.empty(0, dtype=torch.uint8, device=keeper.device).set_(keeper)
    key = keeper.device.index, stream
    used = streams.get(key)
    if used is None:
        # The allocator compares streams by their handles, so an ExternalStream stands for the stream itself.
        make = torch.cuda.default_stream if stream == STREAM_LEGACY_DEFAULT else partial(
            torch.cuda.ExternalStream, stream)
        used = streams.setdefault(key, make(keeper.device))
    tensor.record_stream(used)


cdef Managed* marked(Managed* managed, object tensor, Offer offer, const Request* request) except NULL:
    """Refuse a gradient unless the caller wants to drop it, and mark the lazy bits, which place resolves.

    On failure the block is released.
    """
    cdef uint32_t state = state_of(tensor)
    cdef bint byte = is_byte(managed.abi.dl_tensor.dtype)
    cdef int code = managed.abi.dl_tensor.dtype.code
    if not state and not byte:
        return managed
    try:
        if state & FAILED:
            raise_pending()
        if byte:
            check_shell(tensor, offer)
        if state & GRADIENT and not request.detach:
            raise _gradient()
        if state & TRACED and not request.peek:
            libtorch.warn_of_trace()
        if state & (NEGATED | CONJUGATED) and code != kDLFloat and code != kDLComplex and code != kDLBfloat:
            raise _negative_integers()
    except BaseException:
        managed_release(managed)
        raise
    managed.marks |= state & (NEGATED | CONJUGATED)
    return managed


cdef int check_shell(object tensor, Offer offer) except -1:
    """Refuse a tensor of bytes whose dtype has fewer bits."""
    dtype = getattr(tensor, "dtype", None)
    if dtype not in offer.whole_bytes and str(dtype).partition(".")[2] in (offer.facts.shells or ()):
        raise _lacks_dtype(dtype, offer.facts)
    return 0


def _lacks_dtype(dtype, facts):
    return refusal(ConversionError, "torch", "dtype", dtype, "has no form in torch's own export",
                   facts.hint("dtype"))


# ---- subclasses, and torch before 2.10 -------------------------------------------------------------------------------

cdef Managed* acquire_subclass(object obj, Offer offer, const Request* request) except? NULL:
    cdef Managed* managed
    cdef Offer by_table
    cdef Bare bare = Bare(-1, 0)
    obj = prepare_subclass(obj, request)
    facts = facts_of(type(obj))
    if exchange.offers(type(obj), facts, None) is not None:
        by_table = offers(type(obj), facts, None)
        return by_table.acquire(obj, by_table, request)
    if exchange.find_exchange_api(type(obj)) == NULL:
        obj = bare_memory(obj, offer, &bare)
    elif obj.is_neg():
        bare.marks = NEGATED
    if bare.row < 0:
        check_shell(obj, offer)
    if not request.peek:
        libtorch.warn_of_trace()
    managed = dlpack.acquire(obj, offer, request)
    if managed != NULL:
        if bare.row >= 0:
            managed_set_row(managed, bare.row)
        managed.marks |= bare.marks
        keep_storage(managed, obj, request)
    return managed


cdef Managed* refuse_type(object obj, Offer offer, const Request* request) except? NULL:
    raise refusal_by_facts(obj, offer.facts, "torch") or refusal(
        UnsupportedError, "torch", "type", type(obj).__qualname__, "has a shape but no memory",
        offer.facts.hint("no_memory"))


cdef object prepare_subclass(object tensor, const Request* request):
    """A tensor that ``__dlpack__`` exports correctly.

    The subclass's own methods are asked, since a subclass can answer differently from the tensor that libtorch sees.
    """
    if tensor.requires_grad:
        if not request.detach:
            raise _gradient()
        tensor = tensor.detach()
    if tensor.is_neg() or tensor.is_conj() or is_lazy_clone(tensor):
        # The subclass's export refuses the conjugate bit, forgets the negative bit, and copies a lazy clone. The memory
        # of the plain tensor can be marked.
        return tensor.as_subclass(sys.modules["torch"].Tensor)
    return tensor


cdef object bare_memory(object tensor, Offer offer, Bare* out):
    """A tensor that ``__dlpack__`` can export before torch 2.10, which has no exchange API; and what the export lacks.

    ``__dlpack__`` forgets the negative bit, as it still does in torch 2.13, and refuses the conjugate bit and types of
    one byte that it does not know.
    """
    refused = refusal_by_facts(tensor, offer.facts, "torch")
    if refused is not None:
        raise refused
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
    found = refusal_by_facts(tensor, facts, "torch")
    if found is not None:
        return found
    dtype = getattr(tensor, "dtype", None)
    if dtype is not None and find_name(str(dtype).partition(".")[2]) < 0:
        return _lacks_dtype(dtype, facts)
    return refusal(
        UnsupportedError, "torch", "type",
        f"{type(tensor).__qualname__} of {dtype or 'unknown dtype'}", "could not be exported",
        "functorch's wrappers and types that torch alone has have no DLPack form: convert outside of the transform, or "
        'have it call dlbridge.accepts("jax", returns="like", gradients=True)(function); or pass another type')


cdef object failed_export(object obj, object facts):
    """The error for an export that failed. Its cause is what torch raised."""
    cause = take_error()
    if isinstance(cause, (MemoryError, RecursionError)):
        return cause
    made = refusal_of(obj, facts)
    made.__cause__ = cause
    return made
