"""Any array in, any array out: without copying, at the speed of a C call, and every description is checked first."""

from dlbridge._core import loading as _loading  # noqa: F401 (it can refuse to load the rest)
from dlbridge.convert import DLPACK_VERSION, asdlpack, convert, empty, from_dlpack, from_pointer, get_include, to_dlpack
from dlbridge.errors import (
    ConversionError,
    CopyRequiredError,
    DeviceError,
    DeviceMemoryError,
    DLBridgeError,
    MissingLibraryError,
    UnsupportedError,
)
from dlbridge.explain import Plan, explain
from dlbridge.processes import shared, shared_empty
from dlbridge.register import register_container, register_form, register_source, register_target, targets
from dlbridge.shards import from_shards, shards
from dlbridge.tensor import Tensor
from dlbridge.trees import accepts, collate, convert_tree, prefetch
from dlbridge.watch import watch

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
    "empty",
    "explain",
    "from_dlpack",
    "from_pointer",
    "from_shards",
    "get_include",
    "prefetch",
    "register_container",
    "register_form",
    "register_source",
    "register_target",
    "shards",
    "shared",
    "shared_empty",
    "targets",
    "to_dlpack",
    "watch",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
