"""Handles of Windows from process to process: each is made twice when it is sent, and the receiver takes the second."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import reduction
from typing import Any

from dlbridge.errors import ConversionError, refusal

MAP_TO_READ_AND_WRITE = 0x6         # FILE_MAP_READ | FILE_MAP_WRITE


def offer(segment: Any) -> tuple[Any]:
    """What fetched() takes to get the handle of a Segment, once, in a process of this machine."""
    return reduction.DupHandle(segment.descriptor, MAP_TO_READ_AND_WRITE),  # type: ignore[attr-defined, unused-ignore]


@contextmanager
def fetched(offered: Any) -> Iterator[int]:
    """The handle that was offered, which is the caller's."""
    try:
        handle = int(offered.detach())
    except OSError as error:
        raise refusal(ConversionError, "receive", "handle", str(error), "cannot be had from its sender",
                      "let its sender live until it is received, or send dlbridge.asdlpack(x, copy=True)") from error
    yield handle
