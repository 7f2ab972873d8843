"""The groups of ``dlbridge bench``, one file each, in the order of the table."""

GROUPS = (
    "numpy_torch", "torch_numpy", "from_jax", "to_jax", "buffers", "dtypes", "interfaces", "wrap", "mix", "layouts",
    "copies", "threads", "startup", "memory", "paddle",
)
