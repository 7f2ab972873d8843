"""torch's private parts: libtorch's C++ functions, a flag of its storages, and the ids of its streams.

What is relied on
    Three symbols, whose mangled names spell out their types. Every Python tensor holds its at::Tensor, which is the
    pointer that ``tensor._cdata`` gives, at the same offset. Every storage has a byte that says whether it can be
    resized, at the same offset from the pointer that ``storage._cdata`` gives; every tensor holds that pointer.
    ``torch.UntypedStorage._new_with_weak_ptr`` gives the Python object of that pointer.
    ``torch._C._cuda_getCurrentStream`` gives the id of the current stream, which is 0 or odd for a stream of torch's
    own pool.
How it is checked before use
    The symbols are looked up in the libraries that torch has loaded. The offsets are searched for in a few example
    tensors. For each of them the functions must give the answers that Python gives, and the byte must be the only one
    that ``tensor.numpy()`` clears. The storage found must be ``tensor.untyped_storage()``. All of that happens once.
What happens without it
    Python is asked, with four calls for each tensor. ``numpy()`` of a tensor over the storage clears the byte, which
    is possible on the CPU alone. A stream counts as one that may go away.
How to delete it
    Let ``said_of`` be ``ask_python``, ``kept_storage`` and ``keep_size`` do without ``storages``, and ``is_own_stream``
    return False.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from dlbridge._core.atomic cimport load_size
from dlbridge._core.block cimport CONJUGATED, NEGATED


ctypedef unsigned char (*AskTensor)(const void* tensor) noexcept        # bool (c10::TensorImpl::*)() const
ctypedef unsigned char (*AskHandle)(void* const* handle) noexcept       # bool (const at::Tensor&)
ctypedef object (*TakeStorage)(PyObject* kind, PyObject* address)

ctypedef struct Libtorch:
    size_t offset               # of the at::Tensor in the object; 0 if Python must be asked
    AskTensor requires_grad
    AskHandle is_neg
    AskHandle is_conj

ctypedef struct Storages:
    size_t held                 # the offset of the storage's pointer in a C++ tensor; 0 if torch must be asked
    size_t resizable            # the offset of the byte in a storage
    PyObject* type              # torch.UntypedStorage
    TakeStorage take            # its _new_with_weak_ptr(address)

# What a tensor says of itself. The marks NEGATED and CONJUGATED are or'ed to it.
cdef enum Said:
    GRADIENT = 1 << 30
    FAILED = 1 << 31            # a question failed; its exception stays set until the memory is let go

cdef Libtorch libtorch
cdef Storages storages

cdef int find_functions() except -1
# The storage of a tensor, which keeps its size for ever from now on, as tensor.numpy() makes it do.
cdef object kept_storage(object tensor)
# The same of a storage.
cdef int keep_size(object storage) except -1
cdef bint is_own_stream(int device_id) except -1
cdef uint32_t ask_python(object tensor) noexcept

cdef inline uint32_t said_of(object tensor) noexcept:
    """Whether a tensor requires a gradient, and which lazy bits it has.

    In Python these questions cost more than the rest of a conversion, and is_neg() gives up the GIL to read a bit. The
    functions of libtorch behind them do not.
    """
    return ask_libtorch(&libtorch, tensor) if load_size(&libtorch.offset) else ask_python(tensor)

cdef inline void** handle_of(object tensor, size_t offset) noexcept:
    return <void**> (<char*> <PyObject*> tensor + offset)

cdef inline uint32_t ask_libtorch(const Libtorch* library, object tensor) noexcept:
    cdef void** handle = handle_of(tensor, library.offset)
    cdef uint32_t said = 0
    if library.requires_grad(handle[0]):
        said |= GRADIENT
    if library.is_neg(handle):
        said |= NEGATED
    if library.is_conj(handle):
        said |= CONJUGATED
    return said
