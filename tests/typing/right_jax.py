"""As right.py, with JAX."""

from typing import Any, assert_type

import jax
import jax.numpy

import dlbridge

array = jax.numpy.zeros(3)

assert_type(dlbridge.convert(b"", "jax"), jax.Array)
assert_type(dlbridge.convert(b"", jax.Array), jax.Array)
assert_type(dlbridge.convert(b"", jax), Any)
assert_type(dlbridge.convert(b"", jax.numpy), Any)
assert_type(dlbridge.convert(b"", array), Any)
assert_type(dlbridge.convert(array, "jax", device=jax.devices()[0]), jax.Array)
