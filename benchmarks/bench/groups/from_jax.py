"""From JAX, whose arrays are read-only."""

from bench.rows import Group, Row

GROUP = Group("from JAX", (
    Row("jax -> torch", 'dlbridge.convert(jax_array, to="torch", readonly="share")', {
        "torch.from_dlpack": "torch.from_dlpack(jax_array)",
        "torch.from_numpy": "torch.from_numpy(numpy.asarray(jax_array))",
    }, "floors.jax_to_torch(jax_array)"),
    Row("jax -> numpy", 'dlbridge.convert(jax_array, to="numpy")', {
        "numpy.asarray": "numpy.asarray(jax_array)",
        "numpy.from_dlpack": "numpy.from_dlpack(jax_array)",
    }, "floors.jax_to_numpy(jax_array)"),
))
