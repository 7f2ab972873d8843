"""LiteRT: tensor buffers of one axis, as a target by their memory and as a source by a copy.

What its interpreter gives are ndarrays, which need nothing here.
"""

import math
from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import NO_LABELS, NO_SUBBYTE, PLAIN, compact

SEEN = "seen in 2.3.0"


def read(buffer: Any) -> Any:
    """The elements in an ndarray of its own."""
    details = buffer.get_tensor_details()
    shape = tuple(details["shape"])
    return buffer.read(math.prod(shape), details["dtype"]).reshape(shape)


def make(tensor_buffer: Any, array: Any, dtype: str) -> Any:
    """A buffer over an ndarray's memory, which it keeps alive."""
    return tensor_buffer.TensorBuffer.create_from_host_memory(array)


LIBRARY = Library(
    name="litert",
    module="ai_edge_litert.tensor_buffer",
    install="ai-edge-litert",
    arrays=(
        Arrays(
            "TensorBuffer",
            gives=Fact(read, SEEN, "has no protocol, and no public way to its memory"),
            copies=Fact(True, SEEN, "gives its elements by read() alone"),
        ),
    ),
    delivery="importer:prepare_for_ndarrays",
    importer=make,
    array_types=("TensorBuffer",),
    lacks=(
        *compact(SEEN, "refuses other orders, and forgets the shape"),
        *PLAIN,
        Fact("READ_ONLY", SEEN, "takes it, and write() writes"),
        Fact("OTHER_DEVICES", SEEN, "is made over the host's memory"),
        *NO_LABELS,
        *NO_SUBBYTE,
    ),
    alignment=Fact(64, SEEN, "copies what is not aligned to 64 bytes, silently"),
    fewest_axes=Fact(1, SEEN, "has one axis, whatever it is given"),
    most_axes=Fact(1, SEEN, "has one axis, whatever it is given"),
    dtypes=(
        Fact(("bool", "int8", "uint8", "int32", "float16", "float32", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
             SEEN),
    ),
)
