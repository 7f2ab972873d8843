"""Whose lacks need more than the test extra: tests/libraries tries those of the extra "all"."""

from support.lacking import TARGETS

# The libraries of the test extra, those of GPUs, and what is no library.
OF_TEST = frozenset(("numpy", "torch", "jax", "pyarrow", "array_api_strict", "cupy", "numba", "memoryview", "dlpack",
                     "dlpack_versioned", "dlbridge", "*"))
HEAVY = frozenset(("dpnp", "mindspore"))        # … and of tools/heavy.sh
OF_ALL = frozenset(library.name for library in TARGETS) - OF_TEST - HEAVY
