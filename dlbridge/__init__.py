"""Any array in, any array out: without copying, at the speed of a C call, and every description is checked first."""

from dlbridge._core import interpreter as _interpreter  # noqa: F401, I001 (these two can refuse to load the rest)
from dlbridge._core import compiled as _compiled  # noqa: F401
from dlbridge._core.cache import load_module as _load_module
from dlbridge.convert import DLPACK_VERSION, asdlpack, convert, from_dlpack, to_dlpack
from dlbridge.errors import (
    ConversionError,
    CopyRequiredError,
    DeviceError,
    DeviceMemoryError,
    DLBridgeError,
    MissingLibraryError,
    UnsupportedError,
)
from dlbridge.tensor import Tensor

__version__ = "0.1.0"

__all__ = [
    "DLPACK_VERSION",
    "ConversionError",
    "CopyRequiredError",
    "DLBridgeError",
    "DeviceError",
    "DeviceMemoryError",
    "MissingLibraryError",
    "Plan",
    "Tensor",
    "UnsupportedError",
    "accepts",
    "asdlpack",
    "collate",
    "convert",
    "convert_tree",
    "explain",
    "from_dlpack",
    "from_pointer",
    "get_include",
    "prefetch",
    "register_container",
    "register_source",
    "register_target",
    "targets",
    "to_dlpack",
]

# What convert() does not need is imported with its first use.
_LATER = {
    "dlbridge.face": ("get_include", "_C_API"),
    "dlbridge.plans": ("Plan", "explain"),
    "dlbridge.pointer": ("from_pointer",),
    "dlbridge.register": ("register_container", "register_source", "register_target", "targets"),
    "dlbridge.trees": ("accepts", "collate", "convert_tree", "prefetch"),
}


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            globals()[name] = value = getattr(_load_module(module), name)
            return value
    raise AttributeError(f"module 'dlbridge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
