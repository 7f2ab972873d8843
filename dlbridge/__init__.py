"""Any array in, any array out: without copying, at the speed of a C call, and never a crash."""

from dlbridge.convert import asdlpack, convert, from_dlpack, to_dlpack
from dlbridge.errors import (
    ConversionError,
    CopyRequiredError,
    DeviceError,
    DLBridgeError,
    MissingLibraryError,
    UnsupportedError,
)
from dlbridge.tensor import Tensor

__version__ = "0.1.0"
