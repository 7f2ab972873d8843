"""jax.Array, through jaxlib's importer on the host and JAX's own elsewhere."""

from dlbridge._core.targets.target cimport Target


cdef int prepare(Target target) except -1
