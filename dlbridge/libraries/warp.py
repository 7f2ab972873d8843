"""Warp: arrays of up to four axes."""

from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import FLOATS, INTEGERS, NO_SUBBYTE, NO_UNIFIED, PLAIN


def start(warp: Any) -> None:
    """Initialise it without its greeting."""
    field, silent = ("log_level", 30) if hasattr(warp.config, "log_level") else ("quiet", True)     # of older ones
    before = getattr(warp.config, field)
    setattr(warp.config, field, silent)
    try:
        warp.init()
    finally:
        setattr(warp.config, field, before)


def current_stream(array: Any, index: int) -> Any:
    """Warp's current stream on the array's device, or None for the host's memory."""
    return array.device.stream if array.device.is_cuda else None


def of_structures(array: Any) -> bool:
    return hasattr(array.dtype, "vars")


LIBRARY = Library(
    name="warp",
    install="warp-lang",
    arrays=(
        Arrays("indexedarray", {"": "pass x.contiguous()"}),
        Arrays("array", {"of_structures": "pass x.numpy(), whose fields convert_tree gives"},
               refused=(Fact(of_structures, "warp#381", "has fields, which DLPack has not"),),
               stream_object=Fact(current_stream, "seen in 1.19", "makes the consumer's stream wait for it")),
    ),
    streams=Fact({"Stream": lambda stream: stream.owner}, "seen in 1.19", "does not keep an external stream alive"),
    delivery="importer",
    importer="from_dlpack",
    array_types=("array",),
    devices=Fact({"Device": lambda device: device.alias}, "seen in 1.19"),
    lacks=(
        *PLAIN,
        Fact("READ_ONLY", "seen in 1.19", "asks for a capsule without flags, and writes"),
        Fact("PINNED", "seen in 1.19", "asks for a GPU's stream, which a build for the CPU does not have"),
        NO_UNIFIED,
        *NO_SUBBYTE,
    ),
    fewest_axes=Fact(1, "seen in 1.19", "fails over a shape of ()"),
    most_axes=Fact(4, "seen in 1.19", "refuses more"),
    dtypes=(Fact(("bool", *INTEGERS, *FLOATS, "bfloat16"), "seen in 1.19"),),
    start=Fact(start, "seen in 1.19", "needs init() before its importer, which does not call it"),
)
