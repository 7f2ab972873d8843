"""Arrow's lists, and its numbers with nulls, taken apart by pyarrow, whichever library has them."""

import sys
from typing import Any, NamedTuple

from dlbridge.errors import ConversionError, refusal


def in_one(array: Any) -> Any:
    """An array, which may be in chunks, as one that is not."""
    if not hasattr(array, "chunks"):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()


def why_copied(array: Any) -> str:
    return "it is in several chunks" if getattr(array, "num_chunks", 1) != 1 else ""


# ---- lists -----------------------------------------------------------------------------------------------------------

def is_list(kind: Any) -> bool:
    lib = sys.modules["pyarrow"].lib
    return kind.id in (lib.Type_LIST, lib.Type_LARGE_LIST)


def form_of_lists(array: Any) -> str | None:
    """Lists of numbers, at any depth, or of lists of one length each of numbers; not of strings."""
    pyarrow, kind = sys.modules["pyarrow"], array.type
    if not is_list(kind):
        return None
    while is_list(kind):
        kind = kind.value_type
    while kind.id == pyarrow.lib.Type_FIXED_SIZE_LIST:
        kind = kind.value_type
    return "ragged" if is_number(kind) else None


def is_number(kind: Any) -> bool:
    """Whether a type is of plain numbers; not of what an extension stores as such."""
    types = sys.modules["pyarrow"].types
    return bool(types.is_integer(kind) or types.is_floating(kind))


class Missing(NamedTuple):
    """The code that makes do without what is missing in lists x."""

    lists: str          # leaves out the lists
    filled: str         # gives the elements a value
    flat: str           # gives all elements side by side
    elements: str       # leaves out elements that are lists


def parts_of_chunks(array: Any) -> tuple[tuple[int, ...], list[Any]]:
    one = in_one(array)
    return parts_of_lists(one, missing_in(one, "x" if one is array else "x.combine_chunks()"))


def missing_in(array: Any, x: str) -> Missing:
    filled = f"pyarrow.{type(array).__name__}.from_arrays({x}.offsets, {x}.values.fill_null(0))"
    return Missing(f"{x}.drop_null()", filled, f"{x}.flatten()", f"{x}.flatten().drop_null()")


def parts_of_lists(array: Any, missing: Missing) -> tuple[tuple[int, ...], list[Any]]:
    """Of lists in lists, the offsets of each. Of a slice only what is within counts as missing."""
    levels = [array]
    while hasattr(levels[-1], "values"):
        levels.append(levels[-1].values)
    offsets = [each.offsets for each in levels if is_list(each.type)]
    values = levels[len(offsets)]
    if any(each.null_count for each in levels):
        check_missing(levels, len(offsets), missing)
        values = without_bitmap(values)
    return (), [values, tuple(offsets)]


def check_missing(levels: list[Any], lists: int, missing: Missing) -> None:
    """Refuse what is missing within so many lists, or in elements that are lists of one length."""
    first, count = 0, len(levels[0])
    for depth, array in enumerate(levels):
        missing_here = array.slice(first, count).null_count if array.null_count else 0
        if missing_here:
            plain = missing.filled if len(levels) == lists + 1 else missing.elements
            hint = missing.lists if depth == 0 else missing.flat if lists > 1 else plain
            wrong = "lists are missing" if depth < lists else "elements have no value"
            raise refusal(ConversionError, "ragged", "null_count", missing_here, wrong, f"pass {hint}")
        if depth < lists:
            start, stop = (array.offsets[place].as_py() for place in (first, first + count))
            if not 0 <= start <= stop <= len(array.values):
                return              # whoever looks at the offsets says so
            first, count = start, stop - start
        elif depth + 1 < len(levels):
            # ``values`` of such lists are those of the whole array that they are a slice of.
            first, count = (array.offset + first) * array.type.list_size, count * array.type.list_size


def without_bitmap(array: Any) -> Any:
    """The same memory, where nothing that is used is missing."""
    pyarrow = sys.modules["pyarrow"]
    children = [without_bitmap(array.values)] if hasattr(array, "values") else None
    return pyarrow.Array.from_buffers(
        array.type, len(array), [None, *array.buffers()[1:len(array.buffers()) if children is None else 1]],
        offset=array.offset, children=children)


# ---- nulls -----------------------------------------------------------------------------------------------------------

def has_nulls(array: Any) -> bool:
    """Whether numbers are missing; bools, whose memory no other library can share, are taken apart in any case."""
    return is_bool(array) or (bool(array.null_count) and is_number(array.type))


def is_bool(array: Any) -> bool:
    return bool(array.type.id == sys.modules["pyarrow"].lib.Type_BOOL)


def why_nullable_copied(array: Any) -> str:
    return "it has eight bools in a byte" if is_bool(array) else why_copied(array)


def why_unpacked(array: Any) -> str:
    return "its mask has eight elements in a byte"


def parts_of_nullable(array: Any) -> tuple[tuple[int, ...], list[Any]]:
    array = in_one(array)
    values = array.fill_null(False).to_numpy(zero_copy_only=False) if is_bool(array) else without_bitmap(array)
    return (len(array),), [values, array.is_null().to_numpy(zero_copy_only=False)]
