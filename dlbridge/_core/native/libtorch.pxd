"""torch's internals: libtorch's C++ functions, two fields of its storages, and the ids of its streams.

What is relied on
    Six symbols, whose mangled names spell out the types of their arguments. Every Python tensor holds its at::Tensor,
    which is the pointer that ``tensor._cdata`` gives, at the same offset. Every storage has a byte that says whether it
    can be resized, and the function that releases its memory, at the same offsets from the pointer that
    ``storage._cdata`` gives; every tensor holds that pointer.
    ``torch.UntypedStorage._new_with_weak_ptr`` gives the Python object of that pointer.
    ``torch._C._cuda_getCurrentStream`` gives the id of the current stream, which is 0 or odd for a stream of torch's
    own pool.
How it is checked before use
    The symbols are looked up in the libraries that torch has loaded. The offsets are searched for in a few example
    tensors. For each of them the functions must give the answers that Python gives, and the byte must be the only one
    that ``tensor.numpy()`` clears. The storage found must be ``tensor.untyped_storage()``. The function must be that of
    lazy clones in those tensors that are lazy clones by ``torch._C._is_cow_tensor``. All of that happens once, outside
    of any trace, mode and transform. What is then said to be traced is asked of Python once more before the warning.
    The keys of the dispatcher that a mode includes are found by a mode, and must not be included before and after it.
What happens without it
    Python is asked, with eight calls for each tensor: ``convert(tensor, to="numpy")`` then takes 1.4 us, where
    ``numpy.from_dlpack(tensor)`` takes 2.4 and ``tensor.numpy()`` 0.7. The first time of a storage, ``numpy()`` of the
    tensor, or of one over its storage, clears the byte, which is possible on the CPU alone: that takes 4 us more, and
    20 with a gradient or bfloat16. Whether a mode is on costs 0.2 us for each tensor that is made. A stream counts as
    one that may go away, unless it is a default one.
How to delete it
    Let ``are_included`` be ``ask_mode``, ``state_of`` be ``ask_python``, ``is_lazy_clone`` be ``ask_lazy_clone``,
    ``storage_object`` and ``keep_size`` do without ``storages``, and ``is_own_stream`` return False.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from dlbridge._core.atomic cimport load_size
from dlbridge._core.block cimport CONJUGATED, NEGATED


ctypedef unsigned char (*AskTensor)(const void* tensor) noexcept        # bool (c10::TensorImpl::*)() const
ctypedef unsigned char (*AskHandle)(void* const* handle) noexcept       # bool (const at::Tensor&)
# std::shared_ptr<TracingState>& (). A version that returns the pointer itself would write it to ``room``.
ctypedef void** (*AskTrace)(void** room) noexcept
ctypedef unsigned char (*AskKeys)(uint64_t keys) noexcept               # bool (c10::DispatchKeySet)
ctypedef object (*TakeStorage)(PyObject* kind, PyObject* address)

ctypedef struct Libtorch:
    size_t offset               # of the at::Tensor in the object; 0 if Python must be asked
    AskTensor requires_grad
    AskHandle is_neg
    AskHandle is_conj
    AskTrace trace
    void* release_lazy_clone    # the function that releases the memory of lazy clones; only its address is compared

ctypedef struct StorageLayout:
    size_t held                 # the offset of the storage's pointer in a C++ tensor; 0 if torch must be asked
    size_t resizable            # the offset of the byte in a storage
    size_t release              # the offset of the function that releases its memory
    PyObject* type              # torch.UntypedStorage
    TakeStorage take            # its _new_with_weak_ptr(address)

# What a tensor says of itself. The marks NEGATED and CONJUGATED are or'ed to it.
cdef enum TensorState:
    TRACED = 1 << 29            # torch.jit.trace() is recording in this thread
    GRADIENT = 1 << 30
    FAILED = 1 << 31            # a question failed; its exception stays set until the memory is released

# Whether a mode sees what torch's dispatcher does in this thread: are_included(keys_of_modes).
cdef AskKeys are_included
cdef uint64_t keys_of_modes
cdef Libtorch libtorch
cdef StorageLayout storages

cdef int find_functions() except -1
cdef int find_modes() except -1
cdef object unseen(object work)
# The storage of a tensor, which keeps its size for ever from now on, as tensor.numpy() makes it do.
cdef object storage_object(object tensor)
# Lets a storage keep its size for ever from now on.
cdef int keep_size(object storage) except -1
# Warn as tensor.numpy() does; the values that leave torch become constants of the trace.
cdef int warn_of_trace() except -1
cdef bint ask_lazy_clone(object tensor) noexcept
# Whether ``stream``, which is torch's current stream on the device, is torch's own and so lives for ever.
cdef bint is_own_stream(int device_id, int64_t stream) except -1
cdef uint32_t ask_python(object tensor) noexcept

cdef inline uint32_t state_of(object tensor) noexcept:
    """Whether a tensor requires a gradient, which lazy bits it has, and whether it is traced.

    In Python these questions cost more than the rest of a conversion, and is_neg() gives up the GIL to read a bit. The
    functions of libtorch behind them are cheap, and keep the GIL.
    """
    return ask_libtorch(&libtorch, tensor) if load_size(&libtorch.offset) else ask_python(tensor)

cdef inline bint is_lazy_clone(object tensor) noexcept:
    """Whether a tensor shares its memory with others until one of them is written (``torch._lazy_clone``)."""
    cdef size_t held = load_size(&storages.held)
    cdef char* storage
    if not held:
        return ask_lazy_clone(tensor)
    storage = storage_of(tensor, held)
    return storage != NULL and (<void**> (storage + storages.release))[0] == libtorch.release_lazy_clone

cdef inline char* storage_of(object tensor, size_t held) noexcept:
    """The C++ storage of a tensor; NULL where it has none, as a sparse one."""
    return (<char**> (<char*> handle_of(tensor, libtorch.offset)[0] + held))[0]

cdef inline void** handle_of(object tensor, size_t offset) noexcept:
    return <void**> (<char*> <PyObject*> tensor + offset)

cdef inline uint32_t ask_libtorch(const Libtorch* library, object tensor) noexcept:
    cdef void** handle = handle_of(tensor, library.offset)
    cdef void* room[2]
    cdef uint32_t state = 0
    if library.trace(room)[0] != NULL:
        state |= TRACED
    if library.requires_grad(handle[0]):
        state |= GRADIENT
    if library.is_neg(handle):
        state |= NEGATED
    if library.is_conj(handle):
        state |= CONJUGATED
    return state
