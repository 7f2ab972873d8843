"""What picklers do with Tensors over Segments: they send where the descriptor can be fetched, and what is in it."""

import sys
from multiprocessing.reduction import ForkingPickler
from typing import Any

from dlbridge.processes.segment import Segment, Sendable

if sys.platform == "win32":
    from dlbridge.processes.handles import fetch, offer
else:
    from dlbridge.processes.descriptors import fetch, offer

# joblib brings a loky of its own.
LOKYS = "loky.backend.reduction", "joblib.externals.loky.backend.reduction"


def tell_picklers() -> None:
    """Tell the picklers that send to other processes of this machine; those of loky once it is imported."""
    for register in (ForkingPickler.register, *(sys.modules[name].register for name in LOKYS if name in sys.modules)):
        register(Sendable, Sendable.in_segment)
        for kind in Segment.__subclasses__():
            register(kind, reduce_segment)


def reduce_segment(sent: Any) -> tuple[Any, ...]:
    """Offer a Segment once to whoever loads the pickle. A pickle has it once, however many Tensors are over it."""
    return receive, (type(sent), sent.as_sent(), *offer(sent))


def receive(kind: type, about: tuple[Any, ...], *offered: Any) -> Any:
    """The Segment that was sent."""
    tell_picklers()
    arriving = kind()
    fetch(arriving, *offered)
    return arriving.arrived(*about)
