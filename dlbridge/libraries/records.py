"""Elements of several numbers of one type, seen as a last axis: records, and PEP 3118's ``3f`` and ``fff``."""

import ctypes
import math
import re
from typing import Any, NamedTuple

import numpy as np

from dlbridge.errors import ConversionError, refusal

NUMBERS = "?bBhHiIlLqQefdFD"        # letters of NumPy's types that DLPack has
REGISTERED = 2                      # what NumPy says of ml_dtypes' types


class Numbers(NamedTuple):
    """The numbers that an element consists of, which lie at even distances, in bytes."""

    dtype: np.dtype[Any]
    first: int
    step: int
    amount: int

    def as_slice(self, item_bytes: int) -> slice | None:
        """Which ones they are of an element that is all numbers; None if they are at no multiple of their size."""
        size = self.dtype.itemsize
        if self.step < size or any(distance % size for distance in (item_bytes, self.first, self.step)):
            return None
        first, step = self.first // size, self.step // size
        return slice(first, first + step * (self.amount - 1) + 1, step)


def numbers_of(dtype: np.dtype[Any], offset: int = 0) -> Numbers | None:
    """The numbers of an element; None if they are of several types, at uneven distances, or there are none."""
    fields: Any = dtype.fields
    if dtype.names:
        return joined([numbers_of(dtype[name], offset + fields[name][1]) for name in dtype.names])
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        count = math.prod(shape)
        part = joined([numbers_of(base, offset + index * base.itemsize) for index in range(min(count, 2))])
        return part and part._replace(amount=part.amount * count // min(count, 2))
    return Numbers(dtype, offset, dtype.itemsize, 1) if dtype.char in NUMBERS or dtype.isbuiltin == REGISTERED else None


def joined(parts: list[Numbers | None]) -> Numbers | None:
    """Several of them, one after the other."""
    whole = parts[0] if parts else None
    for part in parts[1:]:
        if whole is None or part is None or part.dtype != whole.dtype:
            return None
        distance = part.first - whole.first - whole.step * (whole.amount - 1)
        if any(numbers.amount > 1 and numbers.step != distance for numbers in (whole, part)):
            return None
        whole = whole._replace(step=distance, amount=whole.amount + part.amount)
    return whole


def seen_in(exporter: Any, name: str) -> np.ndarray[Any, Any] | None:
    """The memory of an exporter whose elements are several numbers, as an ndarray; None if NumPy cannot read it.

    The numbers of an element are a last axis; they are of the type of that name.
    """
    array = as_array(exporter)
    if array is None:
        return None
    numbers = numbers_of(array.dtype)
    chosen = None if numbers is None else numbers.as_slice(array.dtype.itemsize)
    if numbers is None or chosen is None:
        records = "x" if array is exporter else "numpy.asarray(x)"
        raise refused(name, "is for fields of one type at even distances",
                      f'call dlbridge.convert_tree({records}, to, columns="pass")')
    if numbers.dtype.name != name:
        raise refused(name, f"reads bytes and does not cast, and the fields are of {numbers.dtype.name}",
                      hint_for(numbers.dtype))
    if array.dtype.names is None:
        return array                    # a count is an axis of NumPy's already
    return array[..., np.newaxis].view(numbers.dtype)[..., chosen]


def refused(name: str, wrong: str, hint: str) -> ConversionError:
    return refusal(ConversionError, "convert", "dtype", repr(name), wrong, f"{hint}, or pass shape= to read the bytes")


def hint_for(dtype: np.dtype[Any]) -> str:
    return f'call dlbridge.convert(x, to, dtype="{dtype.name}")'


def as_array(exporter: Any) -> np.ndarray[Any, Any] | None:
    """An exporter's memory as NumPy reads it; None if it cannot, or if it has no numbers."""
    try:
        array = plain(exporter) if isinstance(exporter, np.ndarray) else array_of(memoryview(exporter))
    except (TypeError, ValueError, BufferError, RuntimeError, RuntimeWarning):
        return None
    has_numbers = array.dtype.names or numbers_of(array.dtype) is not None
    return array if has_numbers and not array.dtype.hasobject else None


def plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An ndarray, of a subclass or behind a proxy, which NumPy does not see through, as one of NumPy's own type."""
    return np.asarray(array if issubclass(type(array), np.ndarray) else array.__array__())


def array_of(view: memoryview) -> np.ndarray[Any, Any]:
    """A buffer as an ndarray. Of a packed structure ctypes says bytes as its format; its type says the fields."""
    if view.format != "B":
        return np.asarray(view)
    dtype = np.dtype(structure_in(view))
    numbers = numbers_of(dtype)
    if numbers is None or numbers.amount * numbers.dtype.itemsize != view.itemsize:
        raise TypeError("it has other fields, of a class that it is derived from or of a union")
    return np.ndarray(view.shape or (), dtype, view)


def structure_in(view: memoryview) -> Any:
    """The type of the elements that an array of ctypes has, or of the object itself."""
    kind: Any = type(view.obj)
    while issubclass(kind, ctypes.Array):
        kind = kind._type_
    return kind


def bytes_of(exporter: Any) -> Any:
    """The bytes of an exporter as they lie, in an object with a buffer; None if they are not to be seen."""
    try:
        if isinstance(exporter, np.ndarray):
            array = plain(exporter)
            return None if array.dtype.hasobject else array[..., np.newaxis].view("uint8")
        view = memoryview(exporter)
        return None if has_objects(view) else view.cast("B")
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None             # a class of Python may raise anything in __buffer__()


def has_objects(view: memoryview) -> bool:
    """Whether the elements are objects of Python, or have some. Of ctypes' structures no format has all fields."""
    if isinstance(view.obj, (ctypes.Structure, ctypes.Union, ctypes.Array)):
        return keeps_objects(type(view.obj))
    return "O" in re.sub(":[^:]*:", "", view.format or "")      # without the names of fields


def keeps_objects(kind: Any) -> bool:
    """Whether a type of ctypes is an object of Python, or has one in a field, which may be a base's."""
    if issubclass(kind, ctypes.Array):
        return keeps_objects(kind._type_)
    fields = [field[1] for base in kind.__mro__ for field in vars(base).get("_fields_", ())]
    return issubclass(kind, ctypes.py_object) or any(map(keeps_objects, fields))
