"""JAX arrays, through JAX's own importer."""

from dlbridge._core.targets.target cimport Target


cdef Target new_target()
