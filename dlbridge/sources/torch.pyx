"""What a torch tensor carries beside its memory: a gradient, and lazy bits that change what the memory means.

torch's exchange API checks none of these, and no export of torch 2.13 checks the negative bit: a tensor that has it
arrives everywhere with the wrong sign.
"""

import sys

from dlbridge.abi cimport kDLBfloat, kDLComplex, kDLFloat
from dlbridge.managed cimport CONJUGATED, NEGATED, Managed
from dlbridge.request cimport Request

from dlbridge.errors import ConversionError, UnsupportedError, refusal


cdef bint is_torch(object kind):
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return isinstance(tensor, type) and issubclass(kind, tensor)


cdef int mark_torch(Managed* managed, object tensor, const Request* request) except -1:
    """Refuse a gradient unless it shall be dropped, and mark the lazy bits for place to resolve.

    Only floating and complex tensors can have the negative bit, only complex ones the conjugate bit.
    """
    cdef int code = managed.abi.dl_tensor.dtype.code
    if not request.detach and tensor.requires_grad:
        raise _gradient()
    if code == kDLFloat or code == kDLComplex or code == kDLBfloat:
        if tensor.is_neg():
            managed.marks |= NEGATED
        if code == kDLComplex and tensor.is_conj():
            managed.marks |= CONJUGATED
    return 0


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
