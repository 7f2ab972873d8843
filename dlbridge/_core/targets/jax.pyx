"""jax.Array, through jaxlib's importer on the host and JAX's own elsewhere."""

from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLDevice, kDLCPU
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.capsule cimport new_legacy_capsule
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.dtypes cimport NO_ROW, get_row, nearest_row, row_name, rows_named
from dlbridge._core.place cimport sent_to_pool
from dlbridge._core.request cimport Request
from dlbridge._core.targets cimport numpy
from dlbridge._core.targets.consumer cimport call_consumer, is_large, tensor_to_share
from dlbridge._core.targets.jaxlib cimport device_importer, host_importer
from dlbridge._core.targets.target cimport Target

from dlbridge.errors import ConversionError, DeviceError, refusal


cdef int prepare(Target target) except -1:
    target.accepts = accepts
    target.deliver = deliver
    target.upload = upload
    target.adjust = adjust
    return 0


cdef int adjust(Target target) except -1:
    target.asked_rows = rows_named(target.facts.wide_dtypes.value)
    return 0


cdef object accepts(const Managed* managed, Target target):
    """Refuse dtypes that JAX would narrow. JAX is asked each time, since jax.enable_x64() is a context manager too."""
    if not target.asked_rows >> managed.row & 1 or target.namespace.config.jax_enable_x64:
        return None
    hint = 'jax.config.update("jax_enable_x64", True)'
    if nearest_row(managed.row) != NO_ROW:
        hint += ", or pass narrow=True"
    return refusal(ConversionError, "jax", "dtype", row_name(managed.row),
                   "would be narrowed silently, since jax_enable_x64 is off", hint)


cdef object deliver(Managed* managed, Target target):
    if get_row(managed.row).subbyte:
        return target.namespace.numpy.asarray(numpy.deliver(managed, target))
    # JAX takes legacy capsules, and before 0.12 no others (jax#40789). For read-only memory that is safe, since JAX's
    # arrays are immutable.
    if managed.abi.dl_tensor.device.device_type != kDLCPU:
        return call_consumer(device_importer(target, managed), target, tensor_to_share(managed, target))
    capsule = new_legacy_capsule(managed)
    return call_consumer(host_importer(target), target, capsule)


cdef object from_pool(Managed* managed, Target target):
    """An array of memory of the pool, or JAX's own copy of it; managed is stolen."""
    cdef int64_t stream = device_operations().stream_of(managed)
    if target.keeps_imports:
        return deliver(managed, target)
    try:
        device_operations().settle(managed)
    except BaseException:
        managed_release(managed)
        raise
    return target.facts.copier.value(deliver(managed, target), stream)


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    """Copy host memory to a device by JAX's own copy. JAX reads the source until the copy is ready, so this waits.

    Large memory takes a faster way to memory of the pool.
    """
    cdef int index = max(0, device.device_id)
    cdef bint host = device.device_type == kDLCPU
    cdef Managed* sent
    # Elements below a byte go through an ndarray, which is of the host.
    if not host and not get_row(managed.row).subbyte and is_large(managed):
        try:
            sent = sent_to_pool(managed, device, True)
        except DeviceError:
            pass                # JAX may have memory of its own left, and need no pool
        except BaseException:
            managed_release(managed)
            raise
        else:
            managed_release(managed)
            return from_pool(sent, target)
    # An ndarray would be shared by a device of the host (jax.device_put does not copy it).
    array = deliver(managed, target) if host else numpy.deliver(managed, target)
    jax = target.namespace
    return jax.device_put(array, jax.local_devices(backend="cpu" if host else "gpu")[index]).block_until_ready()
