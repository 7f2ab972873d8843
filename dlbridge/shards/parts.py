"""What ``shards`` and ``from_shards`` do: each part is converted by itself."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dlbridge._core.calls import check_keywords
from dlbridge._core.route import target_name
from dlbridge.convert import convert
from dlbridge.errors import ConversionError, DLBridgeError, UnsupportedError, full_name, refusal, shown
from dlbridge.explain import explain
from dlbridge.libraries.library import Facts, Layout, function_for
from dlbridge.trees.leaves import form_of_several

Index = tuple[slice, ...]


def shards(x: object, to: Any, keywords: dict[str, Any]) -> list[tuple[Index, Any]]:
    check_options("shards", keywords)
    target_name(to)
    parts = Facts(type(x)).shards
    if parts is None:
        array = convert(x, to, **keywords)
        return [(tuple(slice(0, extent) for extent in shape_of(x, array)), array)]
    return [(index, converted("shards", index, part, to, **keywords)) for index, part in parts(x)]


def from_shards(
    parts: Iterable[tuple[Index, Any]], like: Any, shape: Sequence[int] | None, keywords: dict[str, Any],
) -> Any:
    check_options("from_shards", keywords)
    kind: Any = type(like)
    read = function_for(kind, "layouts")
    if read is None:
        raise refusal(UnsupportedError, "from_shards", "like", full_name(type(like)), "says of no parts where they are",
                      "pass a jax.sharding.Sharding, a jax.Array, or a DTensor")
    layout: Layout = read(like)
    given = [checked(part) for part in parts]
    extents = layout.shape
    if shape is not None:
        extents = tuple(map(operator.index, shape))
    extents = spanned(given) if extents is None else extents
    with words_of(layout.library):
        places = [(device, explicit(index, extents)) for device, index in layout.places(extents)]
    arrays = by_index(given, extents)
    check_same(arrays, places)
    made: list[Any] = []
    for device, index in places:
        part = next((part for part in arrays[index] if getattr(part, "device", None) == device), arrays[index][0])
        array = converted("from_shards", index, part, layout.library, device=device, **keywords)
        check_part(index, array, made)
        made.append(array)
    with words_of(layout.library):
        return layout.put_together(extents, made)


def shape_of(x: object, array: Any) -> tuple[int | None, ...]:
    """The shape of what is in one part, or of its conversion; a ragged axis has the extent None."""
    facts: Any = Facts(type(array))
    form = form_of_several(array)
    known = None if form is None else facts.library_of_forms().forms.get(form)
    if known is not None:
        shape, parts = known.take_apart(array)
        if form != "ragged":
            return tuple(shape)
        values, offsets = parts
        return len(offsets[0]) - 1, *(None for _ in offsets), *(explain(values, "dlbridge").shape or ())[1:]
    shape = explain(x, "dlbridge").shape
    return tuple(array.shape if hasattr(array, "shape") else (len(array),)) if shape is None else shape


@contextmanager
def words_of(library: str) -> Iterator[None]:
    """Errors of a library, said as dlbridge's."""
    try:
        yield
    except (DLBridgeError, MemoryError, RecursionError):
        raise
    except Exception as error:
        text = f"{type(error).__qualname__}: {str(error).partition(chr(10))[0]}"
        raise refusal(ConversionError, "from_shards", library, text, "was raised by the library",
                      "its message says what it needs") from error


def check_options(call: str, keywords: dict[str, Any]) -> None:
    if "device" in keywords:
        raise TypeError(f"{call}: device: is that of each part (leave it out)")
    check_keywords(call, (), keywords)


def converted(call: str, index: Any, part: Any, to: Any, **keywords: Any) -> Any:
    """A part in an array of a library. An error says which it is about."""
    try:
        return convert(part, to, **keywords)
    except DLBridgeError as error:
        raise refusal(type(error), call, "part", written(index), error.reason, error.hint) from error


# ---- indices ---------------------------------------------------------------------------------------------------------

def check_same(given: dict[Any, list[Any]], places: list[tuple[Any, Any]]) -> None:
    """Check that no part is missing, and that each is one of the layout's, so that none overlaps another."""
    wanted = Counter(index for _, index in places)
    for index, arrays in given.items():
        if index not in wanted:
            some = ", ".join(written(each) for each in list(wanted)[:8]) or "none"
            raise refusal(ConversionError, "from_shards", "index", written(index), "is that of no part of like here",
                          f"pass {some}{', …' if len(wanted) > 8 else ''}")
        if len(arrays) > wanted[index]:
            raise refusal(ConversionError, "from_shards", "index", written(index), f"is there {len(arrays)} times, for "
                          f"{wanted[index]} devices", "pass each part once")
    for index in wanted:
        if index not in given:
            raise refusal(ConversionError, "from_shards", "index", written(index), "is missing",
                          "pass an array for each index")


def check_part(index: Any, array: Any, others: list[Any]) -> None:
    extents = tuple(stop - start for start, stop in index)
    if tuple(array.shape) != extents:
        raise refusal(ConversionError, "from_shards", "part", written(index),
                      f"has the shape {tuple(array.shape)}, and not {extents}", "pass the part of this index")
    if others and others[0].dtype != array.dtype:
        raise refusal(ConversionError, "from_shards", "part", written(index),
                      f"is of {array.dtype}, and others are of {others[0].dtype}", "pass parts of one dtype")


def checked(part: Any) -> tuple[Index, Any]:
    try:
        index, array = part
        if all(isinstance(each, slice) and each.step in (None, 1) for each in index):
            ends = [[None if end is None else operator.index(end) for end in (each.start, each.stop)] for each in index]
            return tuple(slice(*each) for each in ends), array
    except (TypeError, ValueError):
        pass
    raise refusal(ConversionError, "from_shards", "part", shown(part), "is no pair of slices and an array",
                  "pass ((slice(0, 2), slice(0, 3)), array), as dlbridge.shards gives it")


def explicit(index: Index, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Where each slice begins and ends, in an array of a shape."""
    return tuple(each.indices(int(extent))[:2] for each, extent in zip(index, shape, strict=True))


def written(index: Any) -> str:
    """An index as code: x[0:2, 4:8]."""
    pairs = [(each.start, each.stop) if isinstance(each, slice) else each for each in index]
    return f"[{', '.join(f'{start}:{stop}' for start, stop in pairs)}]"


def spanned(parts: list[tuple[Index, Any]]) -> tuple[int, ...]:
    """The shape that some parts span, where each says where it ends."""
    stops = [[each.stop for each in index] for index, _ in parts]
    if not stops or any(len(each) != len(stops[0]) or None in each for each in stops):
        raise refusal(ConversionError, "from_shards", "shape", None, "cannot be seen from the parts", "pass shape=")
    return tuple(max(axis) for axis in zip(*stops, strict=True))


def by_index(parts: list[tuple[Index, Any]], shape: Sequence[int]) -> dict[Any, list[Any]]:
    """The arrays of each index."""
    found: dict[Any, list[Any]] = {}
    for index, array in parts:
        if len(index) != len(shape):
            raise refusal(ConversionError, "from_shards", "index", written(index), f"is not of {len(shape)} axes",
                          "pass a slice for each axis")
        if any(each.stop is not None and each.stop > extent for each, extent in zip(index, shape, strict=True)):
            raise refusal(ConversionError, "from_shards", "index", written(index),
                          f"is beyond the shape {tuple(shape)}", "pass shape=, or slices within it")
        found.setdefault(explicit(index, shape), []).append(array)
    return found
