"""torch's internals: libtorch's C++ functions, two fields of its storages, and the ids of its streams.

libtorch.pxd says what is relied on.
"""

import ctypes
import os
import sys
import warnings
from contextlib import nullcontext
from functools import partial

from cpython.exc cimport PyErr_SetObject
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from dlbridge._core.abi cimport STREAM_PER_THREAD_DEFAULT
from dlbridge._core.atomic cimport load_size, lock, store_size, unlock
from dlbridge._core.block cimport CONJUGATED, NEGATED
from dlbridge._core.sources.offer cimport library

cdef extern from *:
    """
    #define dlbridge_takes_one(function) \
        (PyCFunction_CheckExact(function) && (PyCFunction_GET_FLAGS(function) & ~METH_CLASS) == METH_O)
    #define dlbridge_function_of(function) ((void *) PyCFunction_GET_FUNCTION(function))
    """
    # Whether a bound method is a C function of one argument, and that function.
    bint takes_one "dlbridge_takes_one"(object function) noexcept
    void* function_of "dlbridge_function_of"(object function) noexcept

cdef unsigned char libtorch_lock

cdef enum:
    LEAST_TENSOR = 64           # bytes that every C++ tensor has
    LEAST_STORAGE = 72          # bytes that every storage has

cdef dict SYMBOLS = {
    "requires_grad": ("libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv"),
    "is_neg": ("libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE"),
    "is_conj": ("libtorch_cpu.so", "_ZN2at6native7is_conjERKNS_6TensorE"),
    "trace": ("libtorch_cpu.so", "_ZN5torch3jit6tracer15getTracingStateEv"),
    "release_lazy_clone": ("libc10.so", "_ZN3c104impl3cow11cow_deleterEPv"),
}
cdef dict SYMBOL_OF_MODES = {
    "are_included": ("libc10.so", "_ZN3c104impl31tls_is_dispatch_keyset_includedENS_14DispatchKeySetE"),
}


# ---- questions -------------------------------------------------------------------------------------------------------

cdef int find_functions() except -1:
    """Find libtorch's functions and the flag of its storages, once, in the versions that they were tested with.

    If torch does not let dlbridge try them, Python is asked, and they are looked for again another time.
    """
    if not library().uses_internals("torch"):
        return 0
    symbols = None if load_size(&libtorch.offset) else _find_symbols(SYMBOLS)
    if symbols is None and load_size(&storages.held):
        return 0
    try:
        unseen(partial(_try_functions, symbols))
    except Exception:
        pass


def _try_functions(symbols):
    examples = _examples()
    if symbols is not None:
        try_symbols(symbols, examples)
    if load_size(&libtorch.offset) and not load_size(&storages.held):
        find_storages(examples)


def in_use():
    """Whether libtorch's functions and the flag of its storages are used, and not Python."""
    return load_size(&libtorch.offset) != 0 and load_size(&storages.held) != 0


cdef object unseen(object work):
    """Call ``work()``, hidden from any trace, mode or transform that the caller is in.

    The guards are C functions, so that no interrupt comes between a change and its undoing.
    """
    torch = sys.modules["torch"]
    trace = torch._C._get_tracing_state() if is_traced() else None
    if trace is not None:
        torch._C._set_tracing_state(None)
    try:
        with guard("DisableTorchFunction"), guard("_DisableTorchDispatch"), guard("_DisableFuncTorch"):
            return work()
    finally:
        if trace is not None:
            torch._C._set_tracing_state(trace)


cdef object guard(str name):
    """One of torch's guards; in a version without it there is nothing to guard against."""
    return getattr(getattr(sys.modules["torch"], "_C", None), name, nullcontext)()


cdef int try_symbols(dict symbols, tuple examples) except -1:
    cdef Libtorch candidate
    candidate.offset = find_handle(examples)
    candidate.requires_grad = <AskTensor> <size_t> symbols["requires_grad"]
    candidate.is_neg = <AskHandle> <size_t> symbols["is_neg"]
    candidate.is_conj = <AskHandle> <size_t> symbols["is_conj"]
    candidate.trace = <AskTrace> <size_t> symbols["trace"]
    candidate.release_lazy_clone = <void*> <size_t> symbols["release_lazy_clone"]
    if candidate.offset and all([ask_libtorch(&candidate, tensor) == ask_python(tensor) for tensor in examples]):
        lock(&libtorch_lock)
        if not libtorch.offset:
            libtorch.requires_grad = candidate.requires_grad
            libtorch.is_neg, libtorch.is_conj = candidate.is_neg, candidate.is_conj
            libtorch.trace = candidate.trace
            libtorch.release_lazy_clone = candidate.release_lazy_clone
            store_size(&libtorch.offset, candidate.offset)      # last: others then read the rest without the lock
        unlock(&libtorch_lock)


cdef size_t find_handle(object examples) except? 0:
    """The offset at which every example has the address that its ``_cdata`` gives, or 0."""
    cdef size_t offset
    torch = sys.modules["torch"]
    if any([type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in examples]):
        return 0                # a mode makes tensors of other types; the symbols are tried another time
    for offset in range(sizeof(PyObject), torch.Tensor.__basicsize__, sizeof(void*)):
        if all([<size_t> handle_of(tensor, offset)[0] == tensor._cdata for tensor in examples]):
            return offset
    return 0


cdef int find_storages(tuple examples) except -1:
    cdef size_t held, resizable, release
    held = find_held(examples)
    resizable = find_resizable(examples[:2])
    release = find_release(examples)
    storage_type = sys.modules["torch"].UntypedStorage
    method = storage_type._new_with_weak_ptr
    if held and resizable and release and takes_one(method) and all([
            method(tensor.untyped_storage()._cdata) is tensor.untyped_storage() for tensor in examples]):
        lock(&libtorch_lock)
        if not storages.held:
            storages.resizable = resizable
            storages.release = release
            storages.type = <PyObject*> storage_type
            storages.take = <TakeStorage> function_of(method)
            store_size(&storages.held, held)        # last: others then read the rest without the lock
        unlock(&libtorch_lock)


cdef size_t find_held(tuple examples) except? 0:
    """The offset in a C++ tensor at which every example has the address that its storage's ``_cdata`` gives, or 0."""
    cdef size_t offset
    for offset in range(sizeof(void*), LEAST_TENSOR, sizeof(void*)):
        if all([(<size_t*> <size_t> (tensor._cdata + offset))[0] == tensor.untyped_storage()._cdata
                for tensor in examples]):
            return offset
    return 0


cdef size_t find_resizable(tuple examples) except? 0:
    """The offset of the byte that numpy() clears in the storage of each example, or 0.

    The search begins behind the storage's counts of references, which may change too.
    """
    cdef set offsets = set(range(2 * sizeof(void*), LEAST_STORAGE))
    cdef const unsigned char* bytes_of
    cdef size_t offset
    for example in examples:
        storage = example.new_zeros(3).untyped_storage()
        bytes_of = <const unsigned char*> <size_t> storage._cdata
        ones = {offset for offset in offsets if bytes_of[offset] == 1 and storage.resizable()}
        sys.modules["torch"].empty(0, dtype=example.dtype).set_(storage).numpy()
        offsets = {offset for offset in ones if bytes_of[offset] == 0 and not storage.resizable()}
    return offsets.pop() if len(offsets) == 1 else 0


cdef size_t find_release(tuple examples) except? 0:
    """The offset at which the storages of lazy clones, and no others, have the function that releases their memory."""
    cdef size_t offset
    is_one = sys.modules["torch"]._C._is_cow_tensor
    for offset in range(2 * sizeof(void*), LEAST_STORAGE, sizeof(void*)):
        if all([((<void**> <size_t> (tensor.untyped_storage()._cdata + offset))[0] == libtorch.release_lazy_clone)
                == is_one(tensor) for tensor in examples]):
            return offset
    return 0


cdef object storage_object(object tensor):
    cdef size_t held = load_size(&storages.held)
    cdef char* address
    cdef object number
    if not held:
        if not hasattr(type(tensor), "untyped_storage"):
            return tensor       # torch before 2.0
        # Under a mode, each method of a tensor is a call of the user's own code.
        with guard("DisableTorchFunction"):
            storage = tensor.untyped_storage()
        if storage.resizable():
            unseen(partial(_fix_size, storage, tensor))
        return storage
    address = storage_of(tensor, held)
    if address == NULL:
        return tensor           # no tensor without a storage has an export in torch 2.13; a later one may
    address[storages.resizable] = 0
    number = <size_t> address
    return storages.take(storages.type, <PyObject*> number)


cdef int keep_size(object storage) except -1:
    if load_size(&storages.held):
        (<char*> <size_t> storage._cdata)[storages.resizable] = 0
    elif storage.resizable():
        unseen(partial(_fix_size, storage))


def _fix_size(storage, tensor=None):
    """Make a storage keep its size, as ``numpy()`` of a tensor over it does; that is possible on the CPU alone."""
    torch = sys.modules["torch"]
    if storage.device.type != "cpu":
        return
    if tensor is not None:
        try:
            tensor.numpy()      # a tenth of the time of what follows
            return
        except (RuntimeError, TypeError):
            pass                # it has a gradient, lazy bits, or a type that NumPy does not have
    torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()


def _find_symbols(symbols):
    """The addresses by question, or None. Only libraries that torch has loaded are searched."""
    folder = os.path.join(os.path.dirname(sys.modules["torch"].__file__), "lib")
    try:
        return {
            question: ctypes.cast(
                getattr(ctypes.CDLL(os.path.join(folder, library), os.RTLD_NOLOAD | os.RTLD_LAZY), symbol),
                ctypes.c_void_p).value
            for question, (library, symbol) in symbols.items()
        }
    except (AttributeError, OSError):
        return None


def _examples():
    torch = sys.modules["torch"]
    real = torch.zeros(2, 3, device="cpu")
    complexes = torch.zeros(2, 3, device="cpu", dtype=torch.complex64)
    wanting = torch.zeros(2, 3, device="cpu", requires_grad=True)
    return (
        real, real[1:, ::2], real.bool(), torch._neg_view(real), complexes, complexes.conj(), complexes.conj().imag,
        torch._neg_view(complexes.conj()), wanting, wanting.detach(), torch.nn.Parameter(real),
        torch._lazy_clone(torch.zeros(2, 3, device="cpu")),
    )


cdef uint32_t ask_python(object tensor) noexcept:
    cdef uint32_t state = 0
    try:
        # Under a mode, each method of a tensor is a call of the user's own code.
        with guard("DisableTorchFunction"):
            if tensor.requires_grad:
                state |= GRADIENT
            if tensor.is_neg():
                state |= NEGATED
            if tensor.is_conj():
                state |= CONJUGATED
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return FAILED
    return state | TRACED if is_traced() else state


cdef bint is_traced() noexcept:
    try:
        return sys.modules["torch"]._C._is_tracing()
    except Exception:
        return False            # a torch without torch.jit


cdef int warn_of_trace() except -1:
    if is_traced():
        warnings.warn(
            "torch.jit.trace records what dlbridge converts from a tensor as a constant, so the trace may not be right "
            "for other inputs", sys.modules["torch"].jit.TracerWarning, stacklevel=frames_of_dlbridge() + 1)


def frames_of_dlbridge():
    """How many of the innermost frames of Python are dlbridge's own: a batch has some, and a plain call has none."""
    frame = sys._getframe()
    count = 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("dlbridge."):
        frame = frame.f_back
        count += 1
    return count


cdef bint ask_lazy_clone(object tensor) noexcept:
    try:
        return sys.modules["torch"]._C._is_cow_tensor(tensor)
    except Exception:
        return False            # torch before 2.1 has none


# ---- modes -----------------------------------------------------------------------------------------------------------

cdef unsigned char ask_mode(uint64_t keys) noexcept:
    try:
        return sys.modules["torch"]._C._len_torch_dispatch_stack() > 0
    except Exception:
        return False            # a torch without modes


are_included = ask_mode


cdef int find_modes() except -1:
    """Have libtorch say whether a mode is on, if it can be tried here."""
    global are_included, keys_of_modes
    cdef AskKeys found
    cdef uint64_t keys
    symbols = _find_symbols(SYMBOL_OF_MODES) if library().uses_internals("torch") else None
    if symbols is None or ask_mode(0):
        return 0
    found = <AskKeys> <size_t> symbols["are_included"]
    torch = sys.modules["torch"]
    try:
        # By functions of C, so that no interrupt comes between them.
        torch._C._push_on_torch_dispatch_stack(torch.utils._python_dispatch.TorchDispatchMode())
        try:
            during = [bit for bit in range(64) if found(<uint64_t> 1 << bit)]
        finally:
            torch._C._pop_torch_dispatch_stack(None)
    except AttributeError:
        return 0                # a torch without modes
    keys = sum([1 << bit for bit in during if not found(<uint64_t> 1 << bit)])
    if keys:
        keys_of_modes = keys
        are_included = found    # last: other threads may call it at once, and it needs the keys


# ---- streams ---------------------------------------------------------------------------------------------------------

cdef enum:
    OWN_STREAMS = 256               # torch's pools have 32 streams for each device and priority

# The streams of torch's pools that were current, by handle. They live for ever, so no other stream gets such a handle.
cdef size_t[OWN_STREAMS] own_streams


cdef bint is_own_stream(int device_id, int64_t stream) except -1:
    """Whether a stream is a default one or of torch's pools. The ids of others are their addresses, which are even."""
    cdef size_t* place = &own_streams[stream >> 4 & OWN_STREAMS - 1]
    if stream <= STREAM_PER_THREAD_DEFAULT or load_size(place) == <size_t> stream:
        return True
    if not load_size(&libtorch.offset):
        find_functions()            # no tensor was a source yet
    if not load_size(&libtorch.offset):
        return False
    try:
        number = sys.modules["torch"]._C._cuda_getCurrentStream(device_id)[0]
    except Exception:
        return False
    if number & 1:
        store_size(place, <size_t> stream)
    return number & 1
