"""JAX arrays, through JAX's own importer."""

from dlbridge.targets.target cimport Target


cdef Target new_target()
