"""Who is told of each copy, while a program watches."""

from dlbridge._core.atomic cimport add
from dlbridge._core.block cimport Managed, Protocol, managed_nbytes, managed_release, protocol_name
from dlbridge._core.devices.table cimport device_name

from dlbridge.errors import full_name, shown


cdef object listener = None

cdef str UNKNOWN = "unknown device"
# Why a batch of prefetch() is copied, and what would avoid that.
OWN = "what prefetch() gives is the caller's own"
OWN_HINT = "pass copy=False if its source does not write to it"
# Why what a producer gives is a copy.
GIVEN = "is read by a copy, which is all that its library gives"
GATHERED = "are gathered into one array"
GATHERED_HINT = "convert the chunks one by one"
COPIED = "nothing to do: it is copied"


def begin(function):
    """Let a function be called with what is known of each copy; there is one for all watches."""
    global listener
    listener = function
    add(&watch_count, 1)


def end():
    add(&watch_count, -1)


cdef int note_copy(
    object src, const Managed* managed, str target, str reason, str hint, str there="cpu", object kind=None,
) except -1:
    source = f"memory by {protocol_name(<Protocol> managed.protocol)}" if src is None else shown(type(src), full_name)
    listener(src, kind, source, device_name(managed.abi.dl_tensor.device), target, there, managed_nbytes(managed),
             reason, hint)
    return 0


cdef Managed* note_made(Managed* managed, object src, str target, str reason, str hint) except NULL:
    try:
        note_copy(src, managed, target, reason, hint)
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef Managed* note_given_copy(Managed* managed, object src) except NULL:
    return note_made(managed, src, "one array", f"memory {GIVEN}", COPIED)


cdef int note_clone(object src, const Managed* managed, str target, bint own) except -1:
    reason, hint = (OWN, OWN_HINT) if own else ("copy was asked for", "pass copy=None")
    if managed != NULL:
        return note_copy(src, managed, target, reason, hint, device_name(managed.abi.dl_tensor.device))
    listener(src, None, shown(type(src), full_name), UNKNOWN, target, UNKNOWN, None, reason, hint)
    return 0
