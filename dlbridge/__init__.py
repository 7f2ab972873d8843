"""Any array in, any array out: without copying, at the speed of a C call, and never a crash."""

from dlbridge._core import interpreter as _interpreter  # noqa: F401, I001 (first: these two can refuse to load the rest)
from dlbridge._core import compiled as _compiled  # noqa: F401
from dlbridge.convert import DLPACK_VERSION, asdlpack, convert, from_dlpack, to_dlpack
from dlbridge.errors import (
    ConversionError,
    CopyRequiredError,
    DeviceError,
    DLBridgeError,
    MissingLibraryError,
    UnsupportedError,
)
from dlbridge.explain import Plan, explain
from dlbridge.register import register_source, register_target, targets
from dlbridge.tensor import Tensor

__version__ = "0.1.0"

# These are imported when they are first asked for: they take a seventh of the time that the rest takes.
_LATER = {"accepts": "trees", "collate": "trees", "convert_tree": "trees"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [
    "DLPACK_VERSION",
    "ConversionError",
    "CopyRequiredError",
    "DLBridgeError",
    "DeviceError",
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
    "register_source",
    "register_target",
    "targets",
    "to_dlpack",
]
