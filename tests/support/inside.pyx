"""The structs of the face: as the inside declares them, and as the header does, in one extension."""

cimport dlbridge

from dlbridge._core.abi cimport DLManagedTensorVersioned, DLTensor
from dlbridge._core.view cimport View, Want


cdef size_t offset(void* field, void* struct) noexcept:
    return <size_t> field - <size_t> struct


def inside():
    """The size of each struct, and where its fields begin."""
    cdef Want want
    cdef View view
    cdef DLTensor tensor
    cdef DLManagedTensorVersioned managed
    return {
        "want": [sizeof(want), offset(&want.size, &want), offset(&want.flags, &want), offset(&want.name, &want),
            offset(&want.dtype, &want), offset(&want.ndim, &want), offset(&want.shape, &want),
            offset(&want.stream, &want), offset(&want.dtypes, &want), offset(&want.dtype_count, &want)],
        "view": [sizeof(view), offset(&view.memory.abi.dl_tensor, &view),
            offset(&view.memory.abi.flags, &view), offset(&view.owner, &view)],
        "tensor": [sizeof(tensor), offset(&tensor.data, &tensor), offset(&tensor.device, &tensor),
            offset(&tensor.ndim, &tensor), offset(&tensor.dtype, &tensor), offset(&tensor.shape, &tensor),
            offset(&tensor.strides, &tensor), offset(&tensor.byte_offset, &tensor)],
        "managed": [sizeof(managed), offset(&managed.version, &managed), offset(&managed.manager_ctx, &managed),
            offset(&managed.deleter, &managed), offset(&managed.flags, &managed),
            offset(&managed.dl_tensor, &managed)],
    }


def header():
    """The size of each struct, and where its fields begin."""
    cdef dlbridge.Want want
    cdef dlbridge.View view
    cdef dlbridge.DLTensor tensor
    cdef dlbridge.DLManagedTensorVersioned managed
    return {
        "want": [sizeof(want), offset(&want.size, &want), offset(&want.flags, &want), offset(&want.name, &want),
            offset(&want.dtype, &want), offset(&want.ndim, &want), offset(&want.shape, &want),
            offset(&want.stream, &want), offset(&want.dtypes, &want), offset(&want.dtype_count, &want)],
        "view": [sizeof(view), offset(&view.tensor, &view), offset(&view.flags, &view), offset(&view.owner, &view)],
        "tensor": [sizeof(tensor), offset(&tensor.data, &tensor), offset(&tensor.device, &tensor),
            offset(&tensor.ndim, &tensor), offset(&tensor.dtype, &tensor), offset(&tensor.shape, &tensor),
            offset(&tensor.strides, &tensor), offset(&tensor.byte_offset, &tensor)],
        "managed": [sizeof(managed), offset(&managed.version, &managed), offset(&managed.manager_ctx, &managed),
            offset(&managed.deleter, &managed), offset(&managed.flags, &managed),
            offset(&managed.dl_tensor, &managed)],
    }
