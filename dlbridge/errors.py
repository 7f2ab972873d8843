"""The exception tree. Every message reads ``stage: field value: what is wrong (what to do)``."""

from collections.abc import Callable
from typing import Any, TypeVar


class DLBridgeError(Exception):
    """The root of dlbridge's own errors about arrays; what a producer raises passes through untouched.

    A wrong keyword is a TypeError or ValueError, as everywhere in Python.

    Attributes
    ----------
    stage : str
        Where the error was found: a protocol, a target, or one of dlbridge's own functions.
    field : str
        What the error is about, by the name that the stage has for it.
    value : str
        The value of the field, as text.
    wrong : str
        What is wrong with it.
    hint : str
        What to do instead. It is the last part of the message, in parentheses.

    Examples
    --------
    >>> import dlbridge
    >>> try:
    ...     dlbridge.convert([1, 2], "numpy")
    ... except dlbridge.DLBridgeError as error:
    ...     print(error)
    ...     print(error.field, error.value, error.hint, sep=" | ")
    source: type list: offers no array protocol (pass numpy.asarray(x))
    type | list | pass numpy.asarray(x)
    """

    stage: str = ""
    field: str = ""
    value: str = ""
    wrong: str = ""
    hint: str = ""

    @property
    def reason(self) -> str:
        """The message without the hint."""
        return f"{self.stage}: {self.field} {self.value}: {self.wrong}" if self.stage else str(self)


class UnsupportedError(DLBridgeError, TypeError):
    """The object offers no array protocol, or the target is unknown."""


class ConversionError(DLBridgeError, BufferError):
    """The memory cannot be described for that target."""


class CopyRequiredError(ConversionError, ValueError):
    """The memory cannot be described for that target without a copy, and ``copy=False`` forbids one.

    It is both a BufferError and a ValueError, because the array API standard names both.
    """


class DeviceError(DLBridgeError, BufferError):
    """A wrong, missing or unreachable device or driver."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The memory of a device does not suffice. The message says how much was wanted, and how much is free."""


class MissingLibraryError(DLBridgeError, ImportError):
    """A library is not installed, mostly the target. The hint is the pip line that installs it."""


# The hint where a producer describes its memory with contradictions.
REPORT = "report it to the producer; until then pass a copy that its library makes"
STAYS_OR_BY_VALUE = "let its sender live until it is received, or send dlbridge.asdlpack(x, copy=True)"
# The end of a hint about a stream that was read, whose producer may give it once.
AGAIN = "it was read: ask for it again first, if it can be read once"


# What a type says itself: a metaclass may answer anything.
QUALNAME = type.__dict__["__qualname__"].__get__
MODULE = type.__dict__["__module__"].__get__


def shown(value: object, write: Callable[[object], str] = repr) -> str:
    """Write a value for a message, or its type if the value cannot be written.

    Python refuses to write integers of 4301 digits, for example.
    """
    try:
        return str.__str__(write(value))        # a subclass of str may do as it likes
    except Exception:
        return f"of type {QUALNAME(type(value))}"


def full_name(kind: Any) -> str:
    """The name of a type after the name of its module."""
    try:
        module = MODULE(kind)
    except AttributeError:
        module = None               # a type can have none
    return f"{module if type(module) is str else 'builtins'}.{QUALNAME(kind)}"


_Error = TypeVar("_Error", bound=DLBridgeError)


def refusal(error: type[_Error], stage: str, field: str, value: object, wrong: object, hint: object) -> _Error:
    """Make an error whose message reads ``stage: field value: what is wrong (what to do)``."""
    text = shown(value, str)
    made = error(f"{stage}: {field} {text}: {wrong} ({hint})")
    made.stage, made.field, made.value, made.wrong, made.hint = stage, field, text, str(wrong), str(hint)
    return made
