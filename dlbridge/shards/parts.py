"""What ``shards`` and ``from_shards`` do: each part is converted by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dlbridge._core.calls import OF_TREES, check_keywords
from dlbridge.convert import convert
from dlbridge.errors import ConversionError, DLBridgeError, UnsupportedError, full_name, refusal, shown
from dlbridge.libraries.library import Facts, Layout, function_for

Index = tuple[slice, ...]


def shards(x: object, to: Any, keywords: dict[str, Any]) -> list[tuple[Index, Any]]:
    check_options("shards", keywords)
    parts = Facts(type(x)).shards
    if parts is None:
        made = convert(x, to, **keywords)
        return [(whole(getattr(x, "shape", ()) or getattr(made, "shape", ())), made)]
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
    extents = tuple(shape) if shape is not None else layout.shape if layout.shape is not None else spanned(given)
    places = [(device, explicit(index, extents)) for device, index in layout.places(extents)]
    arrays = by_index(given, extents)
    check_same(arrays.keys(), [index for _, index in places])
    made = []
    for device, index in places:
        several = arrays[index]
        part = several.pop(0) if len(several) > 1 else several[0]       # one may be for several devices
        made.append(converted("from_shards", index, part, layout.library, device=device, **keywords))
    return layout.put_together(extents, made)


def check_options(call: str, keywords: dict[str, Any]) -> None:
    check_keywords(call, (), keywords)
    if "device" in keywords:
        raise TypeError(f"{call}: device: is that of each part (leave it out; it may be any of "
                        f"{', '.join(name for name in OF_TREES if name != 'device')})")


def converted(call: str, index: Any, part: Any, to: Any, **keywords: Any) -> Any:
    """A part in an array of a library. An error says which it is about."""
    try:
        return convert(part, to, **keywords)
    except DLBridgeError as error:
        raise refusal(type(error), call, "part", written(index), error.reason, error.hint) from error


# ---- indices ---------------------------------------------------------------------------------------------------------

def check_same(given: Collection[Any], wanted: list[Any]) -> None:
    """Check that no part is missing, and that each is one of the layout's, so that none overlaps another."""
    for index in given:
        if index not in wanted:
            raise refusal(ConversionError, "from_shards", "index", written(index), "is that of no part of like here",
                          f"pass {', '.join(dict.fromkeys(map(written, wanted))) or 'none'}")
    for index in wanted:
        if index not in given:
            raise refusal(ConversionError, "from_shards", "index", written(index), "is missing",
                          "pass an array for each index")


def checked(part: Any) -> tuple[Index, Any]:
    try:
        index, array = part
        if all(isinstance(each, slice) and each.step in (None, 1) for each in index):
            return tuple(index), array
    except (TypeError, ValueError):
        pass
    raise refusal(ConversionError, "from_shards", "part", shown(part), "is no pair of slices and an array",
                  "pass ((slice(0, 2), slice(0, 3)), array), as dlbridge.shards gives it")


def whole(shape: Sequence[Any]) -> Index:
    """The index of all; an axis may be ragged."""
    return tuple(slice(0, extent) if isinstance(extent, int) else slice(None) for extent in shape)


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
    """The arrays of each index, once their shapes are what the indices say."""
    found: dict[Any, list[Any]] = {}
    for index, array in parts:
        if len(index) != len(shape):
            raise refusal(ConversionError, "from_shards", "index", written(index), f"is not of {len(shape)} axes",
                          "pass a slice for each axis")
        place = explicit(index, shape)
        extents = tuple(stop - start for start, stop in place)
        of_array = getattr(array, "shape", None)
        if of_array is not None and tuple(of_array) != extents:
            raise refusal(ConversionError, "from_shards", "part", written(index),
                          f"has the shape {tuple(of_array)}, and not {extents}", "pass the part of this index")
        found.setdefault(place, []).append(array)
    return found
