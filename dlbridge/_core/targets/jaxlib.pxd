"""JAX's internals: jaxlib's importer of capsules.

What is relied on
    ``jax._src.lib._jax.dlpack_managed_tensor_to_buffer`` with its five arguments, and ``get_backend``, of whose
    devices ``get_stream_for_external_ready_events`` is asked.
How it is checked before use
    One array is imported by it and by ``jax.dlpack.from_dlpack``, on each device the first. Both results must agree in
    type, address, shape, dtype, weak type, sharding and commitment.
What happens without it
    ``jax.dlpack.from_dlpack`` is called, which calls the same function after some 20 us of Python.
How to delete it
    Let the two functions return what their fall-back does.
"""

from dlbridge._core.block cimport Managed
from dlbridge._core.target cimport Target


cdef object host_importer(Target target)
# The function that makes an array from a Tensor of a device's memory.
cdef object device_importer(Target target, const Managed* managed)
