"""JAX arrays, through jaxlib's own importer."""

import numpy as np

from libc.stdint cimport uint64_t

from dlbridge._core.abi cimport DLDevice, kDLCPU, kDLCUDA
from dlbridge._core.capsule cimport new_legacy_capsule
from dlbridge._core.dtypes cimport get_row, row_name, rows_named
from dlbridge._core.managed cimport Managed
from dlbridge._core.request cimport READONLY_SHARE
from dlbridge._core.targets cimport numpy
from dlbridge._core.targets.consumer cimport call_consumer
from dlbridge._core.targets.target cimport Target
from dlbridge.tensor cimport new_tensor

from dlbridge._core.dtypes import NAMES
from dlbridge.errors import ConversionError, refusal

# Types that JAX silently narrows unless jax_enable_x64 is on (jax#18385), and to what.
WIDE_DTYPES = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}

cdef uint64_t wide_rows = rows_named(WIDE_DTYPES)


cdef Target new_target():
    cdef Target target = Target.__new__(Target)
    target.name = target.library = target.install = "jax"
    target.accepts = accepts
    target.deliver = deliver
    target.upload = upload
    target._load = _load
    return target


def _load(Target target):
    import jax.dlpack
    import jax.numpy
    target.rows &= rows_named(name for name in NAMES if hasattr(jax.numpy, name))    # older versions lack the newest
    target.asked_rows = wide_rows
    target.upload_type = kDLCUDA
    target.array_types = (jax.Array,)
    target.function = jax.dlpack.from_dlpack


cdef object accepts(const Managed* managed, Target target):
    # Asked each time: jax.enable_x64() is a context manager too.
    if wide_rows >> managed.row & 1 and not target.namespace.config.jax_enable_x64:
        name = row_name(managed.row)
        return refusal(ConversionError, "jax", "dtype", name, "would be narrowed silently, since jax_enable_x64 is off",
                       f'jax.config.update("jax_enable_x64", True), or pass x.astype("{WIDE_DTYPES[name]}")')
    return None


cdef object deliver(Managed* managed, Target target):
    if get_row(managed.row).subbyte:
        return target.namespace.numpy.asarray(numpy.deliver(managed, target))
    # JAX arrays are immutable, so a legacy capsule of read-only memory, which JAX asks for (jax#40789), is safe.
    if managed.abi.dl_tensor.device.device_type != kDLCPU:
        return call_consumer(target.function, target, new_tensor(managed, READONLY_SHARE))
    capsule = new_legacy_capsule(managed)
    importer = importers.get("host")
    if importer is None:
        importer = importers.setdefault("host", _find_importer(target))
    return call_consumer(importer, target, capsule)


cdef object upload(Managed* managed, Target target, const DLDevice* device):
    """By JAX's own copy, which reads the source for as long as it is not ready."""
    cdef int index = max(0, device.device_id)
    array = numpy.deliver(managed, target)
    jax = target.namespace
    return jax.device_put(array, jax.local_devices(backend="gpu")[index]).block_until_ready()


# ---- the way in ------------------------------------------------------------------------------------------------------

cdef dict importers = {}        # of capsules, by where the memory is; found with the first array, for that starts JAX


cdef tuple TRAITS = (
    type,
    lambda array: array.unsafe_buffer_pointer(),
    lambda array: (array.shape, array.dtype, array.weak_type, array.sharding, array.committed),
)


def _find_importer(Target target):
    """jaxlib's importer, which jax.dlpack.from_dlpack comes to after some 20 us of Python, or that function itself.

    The short way is private, so one array is taken both ways, and it is the short one only if they agree.
    """
    try:
        importer = _new_importer()
        memory = np.zeros(256, "uint8")
        aligned = memory[-memory.ctypes.data % 64:][:128].view("float32").reshape(4, 8)
        direct, public = importer(aligned.__dlpack__()), target.function(aligned)
        if all(each(direct) == each(public) for each in TRAITS):
            return importer
    except Exception:       # whatever a private function of another version does
        pass
    return lambda capsule: target.function(_HostCapsule(capsule))


def _new_importer():
    from jax._src.lib import _jax
    from jax._src.xla_bridge import get_backend

    import_buffer = _jax.dlpack_managed_tensor_to_buffer
    no_stream, copy_if_needed, host = None, None, int(kDLCPU)

    def import_capsule(capsule):
        # Asked each time, as JAX does: the backends can be made anew.
        device = get_backend("cpu").device_from_local_hardware_id(0)
        return import_buffer(capsule, device, no_stream, copy_if_needed, host)

    return import_capsule


class _HostCapsule:
    """What jax.dlpack.from_dlpack takes: something that has a capsule and says where the memory is."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, *, stream=None):
        return self.capsule

    def __dlpack_device__(self):
        return int(kDLCPU), 0
