"""jax.Array, through jaxlib's importer on the host and JAX's own elsewhere."""

from dlbridge._core.abi cimport DLDevice, kDLCPU
from dlbridge._core.block cimport Managed
from dlbridge._core.capsule cimport new_legacy_capsule
from dlbridge._core.dtypes cimport NO_ROW, get_row, nearest_row, row_name, rows_named
from dlbridge._core.request cimport Request
from dlbridge._core.target cimport Target
from dlbridge._core.targets cimport numpy
from dlbridge._core.targets.importer cimport call_consumer, tensor_to_share
from dlbridge._core.targets.jaxlib cimport device_importer, host_importer

from dlbridge.errors import ConversionError, refusal


def prepare(Target target):
    target.accepts = accepts
    target.deliver = deliver
    target.upload = upload
    target.adjust = adjust


def adjust(Target target):
    target.asked_rows = rows_named(target.facts.wide_dtypes.value)


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


cdef object upload(Managed* managed, Target target, const DLDevice* device, const Request* request):
    """Copy host memory to a device by JAX's own copy. JAX reads the source until the copy is ready, so this waits."""
    cdef int index = max(0, device.device_id)
    cdef bint host = device.device_type == kDLCPU
    # An ndarray would be shared by a device of the host (jax.device_put does not copy it).
    array = deliver(managed, target) if host else numpy.deliver(managed, target)
    jax = target.namespace
    return jax.device_put(array, jax.local_devices(backend="cpu" if host else "gpu")[index]).block_until_ready()
