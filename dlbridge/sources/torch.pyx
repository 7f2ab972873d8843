"""What a torch tensor carries beside its memory: a gradient, and lazy bits that change what the memory means.

torch's exchange API checks none of these, and no export of torch 2.13 checks the negative bit: a tensor that has it
arrives everywhere with the wrong sign.
"""

import sys

from cpython.object cimport PyObject, PyTypeObject

from dlbridge.abi cimport kDLBfloat, kDLComplex, kDLFloat
from dlbridge.managed cimport CONJUGATED, NEGATED, Managed
from dlbridge.request cimport Request

from dlbridge.errors import ConversionError, UnsupportedError, refusal


# Below the attribute lookup: what a descriptor of a C type calls. Only mark_torch() does so, whose tensors are of exact
# types that Python code cannot have given another requires_grad or is_neg than torch's own.
cdef extern from "Python.h":
    ctypedef struct PyMethodDef:
        void* ml_meth
        int ml_flags
    ctypedef struct PyMethodDescrObject:
        PyMethodDef* d_method
    ctypedef struct PyGetSetDef:
        void* get
        void* closure
    ctypedef struct PyGetSetDescrObject:
        PyGetSetDef* d_getset
    int METH_NOARGS
    PyTypeObject PyMethodDescr_Type
    PyTypeObject PyGetSetDescr_Type
    PyObject* _PyType_Lookup(PyTypeObject* kind, object name) noexcept
    PyTypeObject* Py_TYPE(object obj) noexcept

ctypedef object (*Method)(PyObject* tensor, PyObject* nothing)
ctypedef object (*Getter)(PyObject* tensor, void* closure)

ctypedef struct Questions:
    Method is_neg
    Method is_conj
    Getter requires_grad
    void* closure

cdef Questions questions


cdef int prepare_questions(object kind) except -1:
    """Find torch's own functions once; where a version has them otherwise, NULL, and the attributes are asked."""
    cdef PyTypeObject* tensor_type = <PyTypeObject*> kind
    cdef PyObject* getter = _PyType_Lookup(tensor_type, "requires_grad")
    questions.is_neg = find_method(_PyType_Lookup(tensor_type, "is_neg"))
    questions.is_conj = find_method(_PyType_Lookup(tensor_type, "is_conj"))
    if getter != NULL and Py_TYPE(<object> getter) == &PyGetSetDescr_Type:
        questions.requires_grad = <Getter> (<PyGetSetDescrObject*> getter).d_getset.get
        questions.closure = (<PyGetSetDescrObject*> getter).d_getset.closure
    return 0


cdef Method find_method(PyObject* found) noexcept:
    if found == NULL or Py_TYPE(<object> found) != &PyMethodDescr_Type:
        return NULL
    if (<PyMethodDescrObject*> found).d_method.ml_flags != METH_NOARGS:
        return NULL
    return <Method> (<PyMethodDescrObject*> found).d_method.ml_meth


cdef bint is_torch(object kind):
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return isinstance(tensor, type) and issubclass(kind, tensor)


cdef int mark_torch(Managed* managed, object tensor, const Request* request) except -1:
    """Refuse a gradient unless it shall be dropped, and mark the lazy bits for place to resolve.

    Only floating and complex tensors can have the negative bit, only complex ones the conjugate bit.
    """
    cdef int code = managed.abi.dl_tensor.dtype.code
    if not request.detach and has_gradient(tensor):
        raise _gradient()
    if code == kDLFloat or code == kDLComplex or code == kDLBfloat:
        if ask(tensor, questions.is_neg, "is_neg"):
            managed.marks |= NEGATED
        if code == kDLComplex and ask(tensor, questions.is_conj, "is_conj"):
            managed.marks |= CONJUGATED
    return 0


cdef bint has_gradient(object tensor) except -1:
    if questions.requires_grad == NULL:
        return tensor.requires_grad
    return questions.requires_grad(<PyObject*> tensor, questions.closure) is True


cdef bint ask(object tensor, Method method, str name) except -1:
    if method == NULL:
        return getattr(tensor, name)()
    return method(<PyObject*> tensor, NULL) is True


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
