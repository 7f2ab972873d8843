"""The groups of the benchmark, in the order of the table: a file each, but for those in ``pairs``."""

import importlib
from types import ModuleType

from bench.groups.pairs import PAIRS

GROUPS = (
    "numpy_torch", "torch_numpy", "from_jax", "to_jax", "buffers", "dtypes", "interfaces", "wrap", "forms", "cold",
    "mix", "batches", "layouts", "copies", "views", "threads", "startup", "memory", "paddle", "tables",
    "everyday", "columns", "several", "small", "gradients",
)


def load(name: str) -> ModuleType:
    """Import the file of one group, or make a module of a group in ``pairs``."""
    if name not in PAIRS:
        return importlib.import_module(f"{__name__}.{name}")
    module = ModuleType(name)
    module.GROUP = PAIRS[name]  # type: ignore[attr-defined]
    return module
