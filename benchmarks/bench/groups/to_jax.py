"""To JAX, whose arrays are immutable: writable memory is shared on a promise, and copied without one.

JAX shares memory at multiples of 64 bytes alone.
"""

from bench.rows import Group, Row

SIZES = {"48 bytes": 12, "1 MiB": 2**18, "256 MiB": 2**26}      # the float32 elements of this size


def copied(size: str) -> Row:
    """Make the row of a copy, in memory that is then JAX's alone."""
    name = f"ndarray_{SIZES[size]}"
    large = SIZES[size] > 2**20
    return Row(f"ndarray -> jax, {size}", f'dlbridge.convert({name}, to="jax").block_until_ready()', {
        "jax.numpy.asarray": f"jax.numpy.asarray({name}).block_until_ready()",
    }, share=0.05 if large else 1.0, pinned=not large)


GROUP = Group("to JAX", (
    Row("aligned ndarray -> jax", 'dlbridge.convert(aligned, to="jax", readonly="share")', {
        "jax.dlpack.from_dlpack": "jax.dlpack.from_dlpack(aligned)",
        "jax.device_put": "jax.device_put(aligned)",
    }, "floors.numpy_to_jax(aligned)"),
    Row("tensor -> jax", 'dlbridge.convert(tensor, to="jax", readonly="share")', {
        "jax.dlpack.from_dlpack": "jax.dlpack.from_dlpack(tensor)",
    }, "floors.torch_to_jax(tensor)"),
    *(copied(size) for size in SIZES),
), {f"ndarray_{count}": f"numpy.ones({count}, 'f4')" for count in SIZES.values()})
