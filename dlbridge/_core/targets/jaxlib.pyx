"""JAX's internals: jaxlib's importer of capsules. jaxlib.pxd says what is relied on."""

import numpy as np

from dlbridge._core.abi cimport kDLCPU
from dlbridge._core.block cimport Managed
from dlbridge._core.sources.offer cimport library
from dlbridge._core.target cimport Target

cdef dict kept = {}             # the importer, which is found with the first array, since finding it starts JAX


def in_use():
    """Whether jaxlib's importer is called, and not jax.dlpack.from_dlpack."""
    return getattr(kept.get("host"), "__name__", "") == "import_capsule"


cdef object host_importer(Target target):
    """The function that makes an array from a legacy capsule of host memory."""
    importer = kept.get("host")
    return kept.setdefault("host", _find_importer(target)) if importer is None else importer


cdef tuple TRAITS = (
    type,
    lambda array: array.unsafe_buffer_pointer(),
    lambda array: (array.shape, array.dtype, array.weak_type, array.sharding, array.committed),
)


def _find_importer(Target target):
    """jaxlib's importer, which jax.dlpack.from_dlpack calls after some 20 us of Python, or that function itself.

    jaxlib's importer is private. So it is used in the versions that it was tested in, and there only if one array comes
    out the same both ways.
    """
    if library().uses_internals("jax"):
        try:
            importer = _new_importer()
            memory = np.zeros(256, "uint8")
            aligned = memory[-memory.ctypes.data % 64:][:128].view("float32").reshape(4, 8)
            direct, public = importer(aligned.__dlpack__()), target.function(aligned)
            if all(each(direct) == each(public) for each in TRAITS):
                return importer
        except Exception:       # a private function may raise anything
            pass
    return lambda capsule: target.function(_HostCapsule(capsule))


def _new_importer():
    from jax._src.lib import _jax
    from jax._src.xla_bridge import get_backend

    import_buffer = _jax.dlpack_managed_tensor_to_buffer
    no_stream, copy_if_needed, host = None, None, int(kDLCPU)

    def import_capsule(capsule):
        # The backend is asked each time, as JAX does, since JAX can make its backends again.
        device = get_backend("cpu").device_from_local_hardware_id(0)
        return import_buffer(capsule, device, no_stream, copy_if_needed, host)

    return import_capsule


cdef object device_importer(Target target, const Managed* managed):
    device = managed.abi.dl_tensor.device.device_type, managed.abi.dl_tensor.device.device_id
    importer = kept.get(device)
    return _first_import(target, *device) if importer is None else importer


def _first_import(Target target, int device_type, int index):
    """An importer that also finds the one for the next arrays on a device: jaxlib's if both give the same array."""
    def import_both_ways(tensor):
        array, importer = target.function(tensor), target.function
        if library().uses_internals("jax"):
            try:
                quick = _new_device_importer(array, device_type, index)
                direct = quick(tensor)
                if all(each(direct) == each(array) for each in TRAITS):
                    importer = quick
            except Exception:
                pass
        kept.setdefault((device_type, index), importer)
        return array

    return import_both_ways


def _new_device_importer(array, int device_type, int index):
    from jax._src.lib import _jax
    from jax._src.xla_bridge import get_backend

    import_buffer, copy_if_needed = _jax.dlpack_managed_tensor_to_buffer, None
    [device] = array.devices()
    platform = device.platform

    def import_tensor(tensor):
        device = get_backend(platform).device_from_local_hardware_id(index)
        stream = device.get_stream_for_external_ready_events()
        return import_buffer(tensor.__dlpack__(stream=stream), device, stream, copy_if_needed, device_type)

    return import_tensor


class _HostCapsule:
    """An object that jax.dlpack.from_dlpack takes: it has a capsule, and says where the memory is."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **asked):
        return self.capsule

    def __dlpack_device__(self):
        return int(kDLCPU), 0
