"""What a torch tensor carries beside its memory: a gradient, and lazy bits that change what the memory means.

torch's exchange API checks none of these, and no export of torch 2.13 checks the negative bit: a tensor that has it
arrives everywhere with the wrong sign.
"""

import ctypes
import os
import sys

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from dlbridge._core.abi cimport kDLBfloat, kDLComplex, kDLFloat
from dlbridge._core.atomic cimport load_size, lock, store_size, unlock
from dlbridge._core.dtypes cimport find_name
from dlbridge._core.managed cimport CONJUGATED, NEGATED, Managed, managed_release, raise_pending
from dlbridge._core.request cimport Request

from dlbridge.errors import ConversionError, UnsupportedError, refusal


cdef extern from "Python.h":
    PyObject* PyObject_GetAttrString(object obj, const char* name) noexcept
    PyObject* PyObject_CallMethod(object obj, const char* name, const char* format) noexcept
    void Py_DECREF(PyObject* obj) noexcept
    PyObject* Py_True

# Asked in Python the three questions cost more than all the rest of a conversion, and is_neg() gives up the GIL to read
# a bit. The functions of libtorch behind them do not. Their symbols spell out their types, and what they want is the
# at::Tensor in the object: the one pointer that tensor._cdata tells. All of it is used only if the symbols are there,
# the pointer is found at one place in every example, and the answers are Python's for each of them.
ctypedef unsigned char (*AskTensor)(const void* tensor) noexcept        # bool (c10::TensorImpl::*)() const
ctypedef unsigned char (*AskHandle)(void* const* handle) noexcept       # bool (const at::Tensor&)

ctypedef struct Libtorch:
    size_t offset               # of the at::Tensor in the object; 0 where Python must be asked
    AskTensor requires_grad
    AskHandle is_neg
    AskHandle is_conj

cdef Libtorch libtorch
cdef unsigned char libtorch_lock

cdef dict SYMBOLS = {
    "requires_grad": ("libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv"),
    "is_neg": ("libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE"),
    "is_conj": ("libtorch_cpu.so", "_ZN2at6native7is_conjERKNS_6TensorE"),
}

# What a tensor says: beside the marks NEGATED and CONJUGATED.
cdef enum Said:
    GRADIENT = 1 << 30
    FAILED = 1 << 31            # with an exception, which stays set until the memory is let go


cdef int prepare_questions(object kind) except -1:
    """Find libtorch's functions, once; where torch does not let us try them, Python is asked until another time."""
    symbols = None if load_size(&libtorch.offset) else _find_symbols()
    if symbols is None:
        return 0
    try:
        from torch.utils._python_dispatch import _disable_current_modes

        # Whatever mode the caller has set up is not for our examples.
        with sys.modules["torch"]._C.DisableTorchFunction(), _disable_current_modes():
            try_symbols(symbols, _examples())
    except Exception:
        pass
    return 0


cdef int try_symbols(dict symbols, tuple examples) except -1:
    cdef Libtorch found
    found.offset = find_handle(examples)
    found.requires_grad = <AskTensor> <size_t> symbols["requires_grad"]
    found.is_neg = <AskHandle> <size_t> symbols["is_neg"]
    found.is_conj = <AskHandle> <size_t> symbols["is_conj"]
    if found.offset and all([ask_libtorch(&found, tensor) == ask_python(tensor) for tensor in examples]):
        lock(&libtorch_lock)
        if not libtorch.offset:
            libtorch.requires_grad, libtorch.is_neg, libtorch.is_conj = found.requires_grad, found.is_neg, found.is_conj
            store_size(&libtorch.offset, found.offset)      # last: whoever reads it reads the rest without the lock
        unlock(&libtorch_lock)
    return 0


cdef size_t find_handle(object examples) except? 0:
    """The offset at which every example has the address that its ``_cdata`` tells, or 0."""
    cdef size_t offset
    torch = sys.modules["torch"]
    if any([type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in examples]):
        return 0                # under a mode that makes others: another time
    for offset in range(sizeof(PyObject), torch.Tensor.__basicsize__, sizeof(void*)):
        if all([<size_t> handle_of(tensor, offset)[0] == tensor._cdata for tensor in examples]):
            return offset
    return 0


cdef inline void** handle_of(object tensor, size_t offset) noexcept:
    return <void**> (<char*> <PyObject*> tensor + offset)


def _find_symbols():
    """The addresses by question, or None; only libraries that torch has loaded are looked into."""
    folder = os.path.join(os.path.dirname(sys.modules["torch"].__file__), "lib")
    try:
        return {
            question: ctypes.cast(
                getattr(ctypes.CDLL(os.path.join(folder, library), os.RTLD_NOLOAD | os.RTLD_LAZY), symbol),
                ctypes.c_void_p).value
            for question, (library, symbol) in SYMBOLS.items()
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
    )


cdef bint is_torch(object kind):
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return isinstance(tensor, type) and issubclass(kind, tensor)


cdef Managed* mark_torch(Managed* managed, object tensor, const Request* request) except NULL:
    """Refuse a gradient unless it shall be dropped, and mark the lazy bits for place to resolve.

    On failure the block is released.
    """
    cdef uint32_t said = ask_libtorch(&libtorch, tensor) if load_size(&libtorch.offset) else ask_python(tensor)
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


cdef uint32_t ask_libtorch(const Libtorch* library, object tensor) noexcept:
    cdef void** handle = handle_of(tensor, library.offset)
    cdef uint32_t said = 0
    if library.requires_grad(handle[0]):
        said |= GRADIENT
    if library.is_neg(handle):
        said |= NEGATED
    if library.is_conj(handle):
        said |= CONJUGATED
    return said


cdef uint32_t ask_python(object tensor) noexcept:
    cdef uint32_t said = answer(PyObject_GetAttrString(tensor, "requires_grad"), GRADIENT)
    if not said & FAILED:
        said |= answer(PyObject_CallMethod(tensor, "is_neg", NULL), NEGATED)
    if not said & FAILED:
        said |= answer(PyObject_CallMethod(tensor, "is_conj", NULL), CONJUGATED)
    return said


cdef uint32_t answer(PyObject* given, uint32_t meaning) noexcept:
    if given == NULL:
        return FAILED
    Py_DECREF(given)            # bools live on
    return meaning if given == Py_True else 0


cdef object prepare_subclass(object tensor, const Request* request):
    """A tensor that ``__dlpack__`` exports rightly: a subclass may answer anything, so its own methods are asked."""
    if type(tensor).__name__ == "FakeTensor":
        raise torch_refusal(tensor)
    if tensor.requires_grad:
        if not request.detach:
            raise _gradient()
        tensor = tensor.detach()
    if tensor.is_neg() or tensor.is_conj():
        # Its export refuses one of them and forgets the other; the plain tensor's raw memory can be marked.
        return tensor.as_subclass(sys.modules["torch"].Tensor)
    return tensor


cdef object bare_memory(object tensor, Bare* out):
    """Of a tensor before torch 2.10, which has no exchange API: what ``__dlpack__`` exports, and what it leaves out.

    It forgets the negative bit, as it does today, and refuses the conjugate one and types of one byte that it does not
    know; a Parameter's memory is held by an alias, since its module puts other memory under it.
    """
    for field, _, _ in REFUSALS:
        if getattr(tensor, field, False):
            raise torch_refusal(tensor)
    if type(tensor).__name__ == "Parameter":
        tensor = tensor.detach()
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
            raise torch_refusal(tensor)
        tensor = tensor.view(sys.modules["torch"].uint8)
    return tensor


def _negative_integers():
    return refusal(ConversionError, "torch", "is_neg", True, "of integers has no sign bit to flip",
                   "pass x.resolve_neg()")


def _gradient():
    return refusal(ConversionError, "torch", "requires_grad", True, "would be lost, and writes bypass autograd",
                   "pass detach=True, or x.detach()")


# In this order: the attribute that says so, what is wrong, the way out.
REFUSALS = (
    ("is_sparse", "keeps its elements by index", "pass x.to_dense()"),
    ("is_sparse_csr", "keeps its elements by index", "pass x.to_dense()"),
    ("is_mkldnn", "keeps its elements in an opaque layout", "pass x.to_dense()"),
    ("is_nested", "is a list of tensors", "pass x.to_padded_tensor(0.0), or its parts, x.unbind()"),
    ("is_quantized", "keeps a scale beside its integers", "pass x.int_repr() or x.dequantize()"),
    ("is_meta", "has a shape but no memory", "materialise it first, x.to_empty(device='cpu') then fill it"),
)


cdef object torch_refusal(object tensor):
    """Why torch could not export the tensor, by name."""
    kind = type(tensor).__qualname__
    if kind == "FakeTensor":
        return refusal(UnsupportedError, "torch", "type", kind, "has a shape but no memory",
                       "convert outside of torch.compile and FakeTensorMode")
    for field, wrong, way_out in REFUSALS:
        if getattr(tensor, field, False):
            return refusal(UnsupportedError, "torch", field, True, wrong, way_out)
    return refusal(UnsupportedError, "torch", "type", f"{kind} of {getattr(tensor, 'dtype', 'unknown dtype')}",
                   "could not be exported", "functorch wrappers and torch-only dtypes have no DLPack form; x.clone() "
                   "or x.to(dtype) outside of the transform has")


cdef bint is_own_stream(int device_id) except -1:
    """Whether torch's current stream is of its own pool, which lives for ever; the ids of others are even addresses."""
    try:
        number = sys.modules["torch"]._C._cuda_getCurrentStream(device_id)[0]
    except Exception:
        return False
    return number == 0 or number & 1 == 1
