"""Arrow's extension types whose elements are tensors of one shape, or numbers of a type that Arrow lacks."""

import json
import math
from functools import lru_cache

from dlbridge.libraries.library import Fact

RAY = Fact(lambda metadata: (metadata, None), "seen in 2.60.0",
           "has the shape alone; the values of a tensor are a list, whose type says no length")
DATASETS = Fact(lambda metadata: (metadata[0], None), "seen in 5.2.0",
                "has the shape and the type of the values; a list for each axis, whose type says no length")

# By the name of the type: a function of the metadata, which are JSON, to the shape and the permutation or None.
TENSOR_TYPES: dict[bytes, Fact] = {
    b"arrow.fixed_shape_tensor": Fact(
        lambda metadata: (metadata["shape"], metadata.get("permutation")), "CanonicalExtensions",
        "has the shape of the memory in C order; permutation[i] is the axis of the memory that axis i of the tensor "
        "is"),
    b"ray.data.arrow_tensor": RAY,
    b"ray.data.arrow_tensor_v2": RAY,
    **{f"datasets.features.features.Array{axes}DExtensionType".encode(): DATASETS for axes in range(2, 6)},
}

# By the name of the type and the format of its storage: the type whose elements have the same bits.
SAME_BITS: dict[tuple[bytes, str], Fact] = {
    (b"lance.bfloat16", "w:2"): Fact("bfloat16", "lance#1002", "keeps its elements as bytes of one length"),
}


def type_of_bits(name: bytes, storage: str) -> str | None:
    """The name of the type that an extension type's elements are of; None if they are of no type that Arrow lacks."""
    fact = SAME_BITS.get((name, storage))
    return None if fact is None else fact.value


@lru_cache(maxsize=64)
def axes_of(name: bytes, text: bytes) -> tuple[list[int], list[int], int] | None:
    """The shape of a tensor type, the order of its axes, and how many values it has; None for a name of another type.

    It may raise anything, since the metadata may be anything.
    """
    fact = TENSOR_TYPES.get(name)
    if fact is None:
        return None
    shape, order = fact.value(json.loads(text))
    shape = [int(extent) for extent in shape]
    order = list(range(len(shape))) if order is None else [int(place) for place in order]
    if sorted(order) != list(range(len(shape))) or min(shape, default=0) < 0:
        raise ValueError("the permutation is none of the axes, or an extent is negative")
    return shape, order, math.prod(shape)
