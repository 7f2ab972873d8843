"""To JAX, which shares memory at multiples of 64 bytes and copies all other memory."""

from dlbridge.bench.rows import Group, Row

GROUP = Group("to JAX", (
    Row("aligned ndarray -> jax", 'dlbridge.convert(aligned, "jax")', {
        "jax.dlpack.from_dlpack": "jax.dlpack.from_dlpack(aligned)",
        "jax.device_put": "jax.device_put(aligned)",
    }, "floors.numpy_to_jax(aligned)"),
    Row("tensor -> jax", 'dlbridge.convert(tensor, "jax")', {
        "jax.dlpack.from_dlpack": "jax.dlpack.from_dlpack(tensor)",
    }, "floors.torch_to_jax(tensor)"),
))
