"""Handles of Windows from process to process: each is made twice when it is sent, and the receiver takes the second."""

from multiprocessing import reduction
from typing import Any

from dlbridge.errors import STAYS_OR_BY_VALUE, ConversionError, refusal

MAP_TO_READ_AND_WRITE = 0x6         # FILE_MAP_READ | FILE_MAP_WRITE


def offer(segment: Any) -> tuple[Any]:
    """What fetch() takes to get the handle of a Segment, once, in a process of this machine."""
    return reduction.DupHandle(segment.descriptor, MAP_TO_READ_AND_WRITE),  # type: ignore[attr-defined, unused-ignore]


def fetch(arriving: Any, offered: Any) -> None:
    """Give a new Segment the handle that was offered."""
    try:
        arriving.take(int(offered.detach()))
    except OSError as error:
        raise refusal(ConversionError, "receive", "handle", str(error), "cannot be had from its sender",
                      STAYS_OR_BY_VALUE) from error
