"""torch.Tensor, through torch's exchange table."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, DLDevice, kDLCUDA, kDLROCM
from dlbridge._core.block cimport Managed, managed_release, managed_shape, managed_strides
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport ANY_DEVICE_ID
from dlbridge._core.dtypes cimport DTypeRow, find_sized, get_row, row_name
from dlbridge._core.native.libtorch cimport are_included, find_modes, is_own_stream, keys_of_modes
from dlbridge._core.request cimport NOTHING_ASKED, Request
from dlbridge._core.sources.exchange cimport find_exchange_api
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge._core.targets.exchange cimport array_of_table, deliver_capsule, table_stream
from dlbridge._core.target cimport Target

cdef int BYTES = find_sized(b"u", 1)


def prepare(Target target):
    target.deliver = deliver_in_mode
    target.upload = upload
    target.await_upload = await_upload
    target.allocate = allocate
    target.current_stream = current_stream
    target.adjust = adjust


def adjust(Target target):
    torch = target.namespace
    target.api = find_exchange_api(torch.Tensor)
    if target.api == NULL:
        target.deliver = deliver_bytes
    find_modes()
    if getattr(torch.version, "hip", None):
        target.upload_types = 1 << kDLROCM
    elif getattr(torch.version, "cuda", None):
        target.upload_types = 1 << kDLCUDA
    else:
        target.current_stream = NULL


cdef object deliver_in_mode(Managed* managed, Target target):
    """Deliver by torch's table. A mode of this thread sees the tensor, as it sees every other that is made."""
    tensor = array_of_table(managed, target)
    return lifted(tensor, target) if are_included(keys_of_modes) else tensor


cdef object lifted(object tensor, Target target):
    """Show a new tensor to the modes of torch's dispatcher, such as FakeTensorMode, as torch.from_numpy() does."""
    return target.namespace.ops.aten.lift_fresh.default(tensor)


cdef object deliver_bytes(Managed* managed, Target target):
    """Deliver to torch before 2.10. Its importer knows no floats of one byte, so those are delivered as bytes."""
    cdef const DTypeRow* row = get_row(managed.row)
    name = row_name(managed.row) if row.kind == b"V" and row.item_bytes == 1 else None
    if name is not None:
        managed.abi.dl_tensor.dtype = get_row(BYTES).dlpack     # no other code has seen this block
    tensor = deliver_capsule(managed, target)
    tensor = tensor if name is None else tensor.view(getattr(target.namespace, name))
    return lifted(tensor, target) if are_included(keys_of_modes) else tensor


cdef object current_stream(PyObject* target, const DLDevice* device, int64_t* out):
    """torch's current stream. torch's own streams live as long as torch does, so the module counts as their keeper."""
    cdef Target torch = <Target> target
    cdef int64_t stream
    if torch.api == NULL:
        stream = torch.namespace.cuda.current_stream(device.device_id).cuda_stream
        out[0] = stream if stream else STREAM_LEGACY_DEFAULT
    else:
        table_stream(target, device, out)
    return torch.namespace if is_own_stream(device.device_id, out[0]) else None


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    """Copy host memory to a device by torch's own copy."""
    return target.deliver(managed, target).to(cuda_name(device), non_blocking=request.queued != NULL)


cdef int await_upload(object tensor) except -1:
    """Wait for torch's current stream, on which it copies."""
    cdef Request sharing = NOTHING_ASKED
    cdef Managed* managed = acquire_by(offers_for_type(type(tensor)), tensor, &sharing)
    try:
        return device_operations().await_producer(managed)
    finally:
        managed_release(managed)


cdef object allocate(const Managed* like, Target target, const DLDevice* device):
    torch = target.namespace
    return torch.empty_strided(managed_shape(like), managed_strides(like), device=cuda_name(device),
                               dtype=getattr(torch, row_name(like.row)))


cdef str cuda_name(const DLDevice* device):
    cdef int index = device.device_id
    return "cuda" if index == ANY_DEVICE_ID else f"cuda:{index}"
