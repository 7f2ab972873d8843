"""Who is told of each copy, while a program watches."""

from dlbridge._core.atomic cimport add
from dlbridge._core.block cimport Managed, Protocol, managed_nbytes, protocol_name
from dlbridge._core.devices.table cimport device_name

from dlbridge.errors import full_name, shown


cdef object listener = None


def begin(function):
    """Let a function be called with what is known of each copy; there is one for all watches."""
    global listener
    listener = function
    add(&watches, 1)


def end():
    add(&watches, -1)


cdef int note_copy(
    object src, const Managed* managed, str target, str reason, str hint, str there="cpu", object kind=None,
) except -1:
    source = f"memory by {protocol_name(<Protocol> managed.protocol)}" if src is None else shown(type(src), full_name)
    listener(src, kind, source, device_name(managed.abi.dl_tensor.device), target, there, managed_nbytes(managed),
             reason, hint)
    return 0


cdef int note_clone(object src, str target) except -1:
    device = shown(getattr(src, "device", "cpu"), str)
    listener(src, None, shown(type(src), full_name), device, target, device, getattr(src, "nbytes", 0),
             "copy was asked for", "pass copy=None")
    return 0
