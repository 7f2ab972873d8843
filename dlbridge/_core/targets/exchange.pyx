"""Libraries with the C exchange API on their type: torch, Paddle."""


from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t

from dlbridge._core.abi cimport STREAM_LEGACY_DEFAULT, DLDevice, kDLCUDA, kDLROCM
from dlbridge._core.capsule cimport new_versioned_capsule
from dlbridge._core.devices.table cimport ANY_DEVICE_ID
from dlbridge._core.dtypes cimport DTypeRow, find_sized, get_row, row_name, rows_named
from dlbridge._core.managed cimport Managed, managed_hold, managed_release, managed_unhold
from dlbridge._core.sources.exchange cimport find_exchange_api
from dlbridge._core.sources.torch cimport is_own_stream
from dlbridge._core.targets.target cimport Target

from dlbridge._core.dtypes import NAMES
from dlbridge._core.targets.consumer cimport call_consumer, consumer_error


cdef int BYTES = find_sized(b"u", 1)


cdef Target new_torch():
    cdef Target target = Target.__new__(Target)
    target.name = target.library = target.install = "torch"
    target.deliver = deliver
    target.upload = upload
    target.current_stream = current_stream
    target._load = _load_torch
    return target


def _load_torch(Target target):
    torch = target.namespace
    target.rows &= rows_named(name for name in NAMES if hasattr(torch, name))    # older versions lack the newest
    target.array_types = (torch.Tensor,)
    target.api = find_exchange_api(torch.Tensor)
    if getattr(torch.version, "hip", None):
        target.upload_type = kDLROCM
    elif getattr(torch.version, "cuda", None):
        target.upload_type = kDLCUDA
    else:
        target.current_stream = NULL
    target.function = torch.from_dlpack     # torch before 2.10 has no exchange API


cdef Target new_paddle():
    cdef Target target = Target.__new__(Target)
    target.name = target.library = "paddle"
    target.install = "paddlepaddle"
    target.deliver = deliver
    target._load = _load_paddle
    return target


def _load_paddle(Target target):
    paddle = target.namespace
    target.array_types = (paddle.Tensor,)
    target.api = find_exchange_api(paddle.Tensor)
    target.current_stream = table_stream
    # Asked for the stream of a device that it does not see, its table ends the process; without the table, nobody says
    # whose stream is to wait.
    target.gpus = paddle.device.cuda.device_count() if target.api != NULL else 0
    target.function = paddle.utils.dlpack.from_dlpack


cdef object deliver(Managed* managed, Target target):
    cdef void* made = NULL
    if target.api == NULL:
        return deliver_by_capsule(managed, target)
    # The library steals, and when it fails it has run the deleter (cuda.core) or not (torch): a second reference keeps
    # the block readable, and its state tells whether the owner is still to be let go.
    managed_hold(managed)
    if target.api.managed_tensor_to_py_object_no_sync(&managed.abi, &made) or made == NULL:
        managed_release(managed)
        raise consumer_error(target)
    # The array owns the block now, and is nobody's yet but ours: its deleter has run, or does not run before we return.
    managed_unhold(managed)
    array = <object> made
    Py_DECREF(array)            # the reference that the library gave
    return array


cdef object deliver_by_capsule(Managed* managed, Target target):
    """To torch before 2.10, whose importer knows no type below bfloat16: those go as the bytes that they are."""
    cdef const DTypeRow* row = get_row(managed.row)
    name = row_name(managed.row) if row.kind == b"V" and row.item_bytes == 1 else None
    if name is not None:
        managed.abi.dl_tensor.dtype = get_row(BYTES).dlpack     # nobody else has seen this block
    tensor = call_consumer(target.function, target, new_versioned_capsule(managed))
    return tensor if name is None else tensor.view(getattr(target.namespace, name))


cdef object current_stream(PyObject* target, const DLDevice* device, int64_t* out):
    """torch's own streams live as long as torch does, so the module stands for what keeps them."""
    cdef Target torch = <Target> target
    cdef int64_t stream
    if torch.api == NULL:
        stream = torch.namespace.cuda.current_stream(device.device_id).cuda_stream
        out[0] = stream if stream else STREAM_LEGACY_DEFAULT
    else:
        table_stream(target, device, out)
    return torch.namespace if is_own_stream(device.device_id) else None


cdef object table_stream(PyObject* target, const DLDevice* device, int64_t* out):
    """By the library's own table; nothing says what keeps the handle alive."""
    cdef Target library = <Target> target
    cdef void* stream = NULL
    if library.api.current_work_stream(device.device_type, device.device_id, &stream):
        raise consumer_error(library)
    out[0] = <int64_t> stream if stream != NULL else STREAM_LEGACY_DEFAULT
    return None


cdef object upload(Managed* managed, Target target, const DLDevice* device):
    """By torch's own allocator and copy, on its current stream."""
    cdef int index = device.device_id
    return deliver(managed, target).to("cuda" if index == ANY_DEVICE_ID else f"cuda:{index}")
