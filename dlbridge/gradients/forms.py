"""Calls and results taken apart: the arrays in them, and the form that is left."""

import copy
import dataclasses
import enum
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from dlbridge.trees.containers import CONTAINERS, EXACT, fields_of, slots_of
from dlbridge.trees.leaf import ARRAY
from dlbridge.trees.leaves import AS_THEY_ARE, Memo, taker
from dlbridge.trees.walk import Converter, map_leaves

KEPT = 128          # forms, each with what is compiled for it, for each function
NUMBERS = (int, float, complex)
CONSTANTS = (bool, str, bytes, type(None), types.EllipsisType, types.FunctionType)


class Slot(int):
    """The place of an array that was taken out, by its number. A number is no array, so a container may have it."""


def take_out(tree: Any, is_array: Callable[[Any], bool]) -> tuple[Any, list[Any]]:
    """Some containers with slots in place of the arrays in them, and these arrays."""
    if is_array(tree):
        return Slot(0), [tree]
    arrays: list[Any] = []

    def take(leaf: Any, memo: Memo) -> Any:
        if not is_array(leaf):
            return leaf
        arrays.append(leaf)
        return Slot(len(arrays) - 1)

    return map_leaves(dict.fromkeys(AS_THEY_ARE, take), tree, {}), arrays


def put_in(form: Any, arrays: Sequence[Any]) -> Any:
    """The containers again, with these arrays in the slots."""
    if type(form) is Slot:
        return arrays[form]
    if type(form) is list:          # as the positional arguments are
        return [put_in(each, arrays) for each in form]

    def put(leaf: Any, memo: Memo) -> Any:
        return arrays[leaf] if type(leaf) is Slot else leaf

    return map_leaves(dict.fromkeys(AS_THEY_ARE, put), form, {})


def put_in_result(form: Any, arrays: Sequence[Any], to: str) -> Any:
    """The containers of a result again, with these arrays in the slots; a later call has this form too.

    Arrays of yet another library, which are none of the slots, are copied to this one, and other objects are copied.
    """
    if type(form) is Slot:
        return arrays[form]

    def put(leaf: Any, memo: Memo) -> Any:
        return arrays[leaf] if type(leaf) is Slot else leaf if is_constant(leaf) else copy.deepcopy(leaf)

    convert_array = taker(Converter(to, {"copy": True}), to, "pass")
    return map_leaves({**dict.fromkeys(AS_THEY_ARE, put), ARRAY: convert_array}, form, {})


def key_of(form: Any) -> Hashable:
    """What two forms have in common only if all is equal in them; None if something in a form may change unseen."""
    try:
        return find_key(form)
    except LookupError:
        return None


def find_key(form: Any) -> Hashable:
    kind = type(form)
    if kind is Slot:
        return Slot
    if kind in NUMBERS:
        return kind, repr(form)         # nan is not equal to itself, and -0.0 is equal to 0.0
    if kind is range:
        return kind, form.start, form.stop, form.step       # range(0, 3, 2) is equal to range(0, 4, 2)
    if is_constant(form):
        return kind, form
    names, values = parts_of(form)
    return kind, names, tuple(map(find_key, values))


def is_constant(leaf: Any) -> bool:
    """Whether this never changes. Classes and functions stand for themselves, as for jax.jit."""
    if isinstance(leaf, types.BuiltinFunctionType):
        return leaf.__self__ is None or isinstance(leaf.__self__, types.ModuleType)     # and not a method
    return type(leaf) in CONSTANTS or isinstance(leaf, enum.Enum | type | np.dtype)


def parts_of(container: Any) -> tuple[Hashable, Iterable[Any]]:
    """The names in a container and its values, if it has nothing else; LookupError if it may have."""
    kind = type(container)
    if kind in EXACT:
        keys = container if issubclass(kind, dict) else ()
        return tuple(map(find_key, keys)), EXACT[kind].values(container)
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and not hasattr(container, "__dict__"):
        return None, container
    if dataclasses.is_dataclass(kind) and not any(base in CONTAINERS for base in kind.__mro__):
        names = fields_of(container)
        if {*getattr(container, "__dict__", ()), *slots_of(kind)} <= set(names):
            return tuple(names), [getattr(container, name) for name in names]
    raise LookupError


def keep(kept: dict[Any, Any], key: Any, value: Any) -> Any:
    """Keep a value, and not more than KEPT of them: the oldest is made anew when it is needed again."""
    value = kept.setdefault(key, value)
    if len(kept) > KEPT:
        kept.pop(next(iter(kept)), None)
    return value
