"""The groups of the benchmark, one file each, in the order of the table."""

import importlib
from types import ModuleType

GROUPS = (
    "numpy_torch", "torch_numpy", "from_jax", "to_jax", "buffers", "dtypes", "interfaces", "wrap", "forms", "cold",
    "mix", "batches", "layouts", "copies", "views", "threads", "startup", "memory", "paddle", "tables",
    "everyday", "columns", "gradients",
)


def load(name: str) -> ModuleType:
    """Import the file of one group."""
    return importlib.import_module(f"{__name__}.{name}")
