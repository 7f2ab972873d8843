"""awkward: ragged arrays, over arrays of NumPy."""

import sys
from typing import Any

import numpy as np

from dlbridge.errors import ConversionError, refusal
from dlbridge.libraries.library import Arrays, Fact, Form, Library, Ragged
from dlbridge.libraries.profiles import COMPLEX, FLOATS, INTEGERS

SEEN = "seen in 2.14.0"
INDICES = {"int32": "Index32", "uint32": "IndexU32", "int64": "Index64"}


def hint_for_array(array: Any) -> str:
    """By the type, since only arrays of one length each are NumPy's, and flattening drops what is missing."""
    if array.fields:
        return f"pass its fields one by one, x[{array.fields[0]!r}]"
    text = array.typestr
    if "string" in text or "bytes" in text:
        return "it has strings, which no array library has"
    return "pass awkward.flatten(x, axis=None)"


def memory_of(array: Any) -> Any:
    """The ndarray of an array whose lists are all of one length, or None."""
    return numbers(array.layout)


def numbers(layout: Any) -> Any:
    """The ndarray of a layout of numbers, or of lists of them that are all of one length; or None.

    What never had an element has the type that awkward gives it, too.
    """
    leaf = layout
    while leaf.is_regular and leaf.parameter("__array__") is None:
        leaf = leaf.content
    if leaf.parameter("__array__") is not None or layout.backend.name not in ("cpu", "cuda"):
        return None                 # strings are lists of characters; a typetracer has no values
    if layout.is_unknown:
        return np.empty(0)
    made = layout.maybe_to_NumpyArray() if layout.is_regular else layout
    return made.data if made is not None and made.is_numpy else None


def leaf_of(array: Any) -> Any:
    layout = array.layout
    while hasattr(layout, "content"):
        layout = layout.content
    return getattr(layout, "data", None)


def is_list(layout: Any) -> bool:
    return bool(layout.is_list and layout.parameter("__array__") is None)


def form_name(array: Any) -> str | None:
    """Lists of numbers, at any depth; those of one length each alone are an array."""
    layout, is_ragged = array.layout, False
    while is_list(layout):
        is_ragged |= not layout.is_regular
        layout = layout.content
    return "ragged" if is_ragged and numbers(layout) is not None else None


def parts_of_lists(array: Any) -> tuple[tuple[int, ...], list[Any]]:
    layout = array.layout
    offsets: list[Any] = []
    while (data := numbers(layout)) is None:
        if layout.is_regular:
            raise refusal(ConversionError, "ragged", "axis", len(offsets), "has lists of one length, which have others",
                          "pass awkward.from_regular(x, axis=None)")
        if not hasattr(layout, "offsets"):
            raise refusal(ConversionError, "ragged", "lists", "of awkward", "are not in the order of their memory",
                          "pass awkward.to_packed(x)")
        offsets.append(layout.offsets.data)
        layout = layout.content
    return (), [data, tuple(offsets)]


def new_lists(kind: Any, shape: tuple[int, ...], parts: list[Any], is_sorted: bool, is_unique: bool) -> Any:
    awkward = sys.modules["awkward"]
    data, offsets = parts
    layout = awkward.contents.NumpyArray(data)
    for each in reversed(offsets):
        index = getattr(awkward.index, INDICES[each.dtype.name])
        layout = awkward.contents.ListOffsetArray(index(each), layout)
    return awkward.Array(layout)


def make(awkward: Any, array: Any, dtype: str) -> Any:
    return awkward.Array(awkward.contents.NumpyArray(array))


LIBRARY = Library(
    name="awkward",
    arrays=(
        Arrays("Array", {"": hint_for_array}, gives=Fact(memory_of, SEEN, "has no protocol of arrays"),
               form_name=Fact(form_name, SEEN, "may have the offsets of lists beside its elements")),
        Arrays("Content", {"": "pass awkward.Array(x)"}),
        Arrays("Record", {"": lambda record: f"pass its fields one by one, x[{record.fields[0]!r}]"}),
    ),
    delivery="importer:prepare_for_ndarrays",
    importer=make,
    array_types=("Array",),
    parts_of="numpy",
    forms={
        "ragged": Form((), parts_of_lists, new_lists, dense="awkward.flatten(x, axis=None)",
                       of_dense='awkward.from_regular(dlbridge.convert(x, "awkward"))', elements=leaf_of,
                       index_types=tuple(INDICES), dense_axes=True, ragged=Ragged(any_start=True, compact=True)),
    },
    lacks=(
        Fact("SWAPPED_BYTES", SEEN, "has native byte order only"),
        Fact("OTHER_DEVICES", SEEN, "has arrays of CuPy there, which it takes itself"),
        Fact("PACKED", SEEN, "has no such types"),
        Fact("PADDED", SEEN, "has no such types"),
    ),
    fewest_axes=Fact(1, SEEN, "has no array without axes"),
    dtypes=(Fact(("bool", *INTEGERS, *FLOATS, *COMPLEX), SEEN),),
    duplicate=Fact(lambda array, detach: sys.modules["awkward"].copy(array), SEEN, "has records and what is missing"),
)
