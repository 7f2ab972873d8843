"""The exception tree. Every message reads ``stage: field value: what is wrong (what to do)``."""


class DLBridgeError(Exception):
    """The root of every error that dlbridge itself raises; what a producer raises passes through untouched."""


class UnsupportedError(DLBridgeError, TypeError):
    """The object offers no array protocol, or the target is unknown."""


class ConversionError(DLBridgeError, BufferError):
    """The memory cannot be described for that target."""


class CopyRequiredError(ConversionError, ValueError):
    """The memory cannot be described for that target without a copy, and ``copy=False`` forbids one.

    A BufferError and a ValueError at once, because the array API standard names both.
    """


class DeviceError(DLBridgeError, BufferError):
    """A wrong, missing or unreachable device or driver."""


class MissingLibraryError(DLBridgeError, ImportError):
    """The target library is not installed; the message is the pip line that installs it."""
