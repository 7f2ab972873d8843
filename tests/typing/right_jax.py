"""As right.py, with JAX."""

from typing import assert_type

import jax
import jax.numpy

import dlbridge

array = jax.numpy.zeros(3)

assert_type(dlbridge.convert(b"", "jax"), jax.Array)
assert_type(dlbridge.convert(b"", jax.Array), jax.Array)
assert_type(dlbridge.convert(b"", jax), jax.Array)
assert_type(dlbridge.convert(b"", jax.numpy), jax.Array)
assert_type(dlbridge.convert(b"", array), jax.Array)
assert_type(dlbridge.convert(array, "jax", device=jax.devices()[0]), jax.Array)
