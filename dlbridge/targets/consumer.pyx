"""Calling a target library, and putting its errors into dlbridge's words."""

from dlbridge.managed cimport take_error
from dlbridge.targets.target cimport Target

from dlbridge.errors import ConversionError, DLBridgeError, refusal


cdef object call_consumer(object importer, Target target, object producer):
    """Hand a capsule or a Tensor to the library's own importer."""
    try:
        return importer(producer)
    except (DLBridgeError, MemoryError):
        raise
    except Exception as error:
        raise _wrap(target, error) from error


cdef object consumer_error(Target target):
    """The exception for a C call that failed: what it raised, if it raised at all, is the cause."""
    cause = take_error()
    wrapped = _wrap(target, cause)
    wrapped.__cause__ = cause
    return wrapped


def _wrap(Target target, error):
    # torch appends its C++ stack to the text.
    text = str(error).partition("\n")[0] if error else "no reason given"
    return refusal(ConversionError, target.name, "import", f"{type(error).__qualname__}: {text}",
                   "was raised by the library", "its message says what it needs")
