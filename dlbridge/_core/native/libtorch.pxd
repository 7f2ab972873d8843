"""torch's private parts: libtorch's C++ functions, and the ids of torch's streams.

What is relied on
    Three symbols, whose mangled names spell out their types. Every Python tensor holds its at::Tensor, which is the
    pointer that ``tensor._cdata`` gives, at the same offset. ``torch._C._cuda_getCurrentStream`` gives the id of the
    current stream, which is 0 or odd for a stream of torch's own pool.
How it is checked before use
    The symbols are looked up in the libraries that torch has loaded. The offset is searched for in a few example
    tensors. For each of them the functions must give the answers that Python gives. All of that happens once.
What happens without it
    Python is asked, with three calls for each tensor. A stream counts as one that may go away.
How to delete it
    Let ``said_of`` be ``ask_python``, and ``is_own_stream`` return False.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from dlbridge._core.atomic cimport load_size
from dlbridge._core.block cimport CONJUGATED, NEGATED


ctypedef unsigned char (*AskTensor)(const void* tensor) noexcept        # bool (c10::TensorImpl::*)() const
ctypedef unsigned char (*AskHandle)(void* const* handle) noexcept       # bool (const at::Tensor&)

ctypedef struct Libtorch:
    size_t offset               # of the at::Tensor in the object; 0 if Python must be asked
    AskTensor requires_grad
    AskHandle is_neg
    AskHandle is_conj

# What a tensor says of itself. The marks NEGATED and CONJUGATED are or'ed to it.
cdef enum Said:
    GRADIENT = 1 << 30
    FAILED = 1 << 31            # a question failed; its exception stays set until the memory is let go

cdef Libtorch libtorch

cdef int find_functions() except -1
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
