"""JAX's private parts: jaxlib's importer of capsules.

What is relied on
    ``jax._src.lib._jax.dlpack_managed_tensor_to_buffer`` with its five arguments, and ``get_backend("cpu")``.
How it is checked before use
    One array is imported by it and by ``jax.dlpack.from_dlpack``. Both results must agree in type, address, shape,
    dtype, weak type, sharding and commitment.
What happens without it
    ``jax.dlpack.from_dlpack`` is called, which calls the same function after some 20 us of Python.
How to delete it
    Let ``host_importer`` return what its fall-back does.
"""

from dlbridge._core.targets.target cimport Target


cdef object host_importer(Target target)
