"""Containers: what is in one, how it is written, and how one of the same kind is made with other values in it.

Python's own containers and those of its standard library are known here. What a library has registered with optree,
torch or JAX is walked by these.
"""

import copy
import dataclasses
import functools
import sys
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, NamedTuple

from dlbridge.errors import UnsupportedError, full_name, refusal, shown
from dlbridge.libraries.library import Facts, keep_as_dict

# The modules with which containers are registered, each with a function that makes a container again from its
# structure and its values. A module is asked only if it is loaded: nothing can be registered before.
WALKERS: dict[str, Callable[[Any, Any, list[Any]], Any]] = {
    "optree": lambda walker, structure, values: walker.tree_unflatten(structure, values),
    "torch.utils._pytree": lambda walker, structure, values: walker.tree_unflatten(values, structure),
    "jax.tree_util": lambda walker, structure, values: walker.tree_unflatten(structure, values),
}


class Container(NamedTuple):
    """How a container is taken apart, and one like it made with other values."""

    values: Callable[[Any], Iterable[Any]]
    labels: Callable[[Any], Iterable[str]]          # what is written after the container's name to get each value
    remake: Callable[[Any, list[Any]], Any]         # of a container and as many values
    is_described: bool = False      # by flatten and unflatten, which may make its values anew
    is_read: bool = False           # from a file or a dataset, which becomes a dictionary


def keys(container: Any) -> Iterable[str]:
    return [f"[{shown(key)}]" for key in container]


def places(container: Any) -> Iterable[str]:
    return [f"[{index}]" for index in range(len(container))]


def items_of(container: Any) -> list[Any]:
    """The values of a dictionary, in the order of its keys. An OrderedDict can have another one than dict.values()."""
    return [dict.__getitem__(container, key) for key in container]


# ---- how each kind is made again -------------------------------------------------------------------------------------

def copied(container: Any) -> Any:
    """A copy keeps what a subclass has beside its values."""
    remade = copy.copy(container)
    if remade is container:
        raise refusal(UnsupportedError, "convert_tree", "type", shown(type(container), full_name),
                      "is its own copy, so none can be made with other values", "convert what is in it")
    return remade


def remake_dict(container: Any, values: list[Any]) -> Any:
    """Items are set one by one: the own __setitem__ of a subclass may keep attributes in step with them."""
    remade = copy.copy(container)
    if remade is container:
        return type(container)(zip(container, values, strict=True))      # it cannot be changed
    for key, value in zip(container, values, strict=True):
        remade[key] = value
    return remade


def remake_list(container: Any, values: list[Any]) -> Any:
    remade = copied(container)
    list.__setitem__(remade, slice(None), values)
    return remade


def remake_tuple(container: Any, values: list[Any]) -> Any:
    kind = type(container)
    try:
        # The constructor of a named tuple takes each value as an argument, but its _make() takes all of them.
        remade = kind._make(values) if hasattr(kind, "_make") else tuple.__new__(kind, values)
    except TypeError:
        return kind(values)             # a structure of C, such as time.struct_time
    if hasattr(remade, "__dict__"):
        vars(remade).update(vars(container))
    return remade


def remake_deque(container: Any, values: list[Any]) -> Any:
    remade = copied(container)
    for index, value in enumerate(values):
        remade[index] = value
    return remade


def remake_user_dict(container: Any, values: list[Any]) -> Any:
    remade = copied(container)
    remade.data = remake_dict(container.data, values)
    return remade


def remake_user_list(container: Any, values: list[Any]) -> Any:
    remade = copied(container)
    remade.data = values
    return remade


def remake_object(container: Any, values: list[Any]) -> Any:
    """No constructor runs, since it would normalise its arguments once more, and may take others than the fields."""
    remade = copy.copy(container)
    remade = bare_copy(container) if remade is container else remade
    extra = extra_of(remade)
    for name, value in zip(fields_of(container), values, strict=True):
        if name in extra:
            extra[name] = value
        else:
            object.__setattr__(remade, name, value)       # it may be frozen
    return remade


def extra_of(container: Any) -> dict[str, Any]:
    """What a model of pydantic has beside its declared fields."""
    extra = container.__pydantic_extra__ if hasattr(type(container), "__pydantic_fields__") else None
    return extra or {}


def bare_copy(container: Any) -> Any:
    """A copy of an object whose own __copy__() gives the object itself."""
    remade = object.__new__(type(container))
    if hasattr(container, "__dict__"):
        vars(remade).update(vars(container))
    for slot in slots_of(type(container)):
        if hasattr(container, slot):
            object.__setattr__(remade, slot, getattr(container, slot))
    return remade


def attributes_of(thing: Any) -> Iterable[tuple[str, Any]]:
    """What an object has in its __dict__ and its slots."""
    yield from getattr(thing, "__dict__", {}).items()
    for slot in slots_of(type(thing)):
        if hasattr(thing, slot):
            yield slot, getattr(thing, slot)


def slots_of(kind: type) -> list[str]:
    """The slots of a type and of its bases, by the names that their attributes have, also the private ones."""
    slots = []
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        for name in [names] if isinstance(names, str) else names:
            private = name.startswith("__") and not name.endswith("__")
            slots.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return [slot for slot in slots if slot not in ("__dict__", "__weakref__")]


def fields_of(container: Any) -> list[str]:
    """The names of the fields that a dataclass, or a class of attrs or pydantic, has values in."""
    kind = type(container)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
    else:
        names = [*getattr(kind, "__pydantic_fields__", {}), *extra_of(container)]
    return [name for name in names if hasattr(container, name)]


# ---- the kinds -------------------------------------------------------------------------------------------------------

# Most containers are of exactly these types, and have nothing beside their values.
EXACT: dict[type, Container] = {
    dict: Container(dict.values, keys, lambda container, values: dict(zip(container, values, strict=True))),
    list: Container(list.__iter__, places, lambda container, values: values),
    tuple: Container(tuple.__iter__, places, lambda container, values: tuple(values)),
    OrderedDict: Container(OrderedDict.values, keys,
                           lambda container, values: OrderedDict(zip(container, values, strict=True))),
}
# Types and their subclasses.
CONTAINERS = {
    dict: Container(items_of, keys, remake_dict),
    list: Container(list.__iter__, places, remake_list),
    tuple: Container(tuple.__iter__, places, remake_tuple),
    deque: Container(deque.__iter__, places, remake_deque),
    UserDict: Container(lambda container: [container.data[key] for key in container.data],
                        lambda container: keys(container.data), remake_user_dict),
    UserList: Container(lambda container: container.data, lambda container: places(container.data), remake_user_list),
    MappingProxyType: Container(lambda container: container.values(), keys,
                                lambda container, values: MappingProxyType(dict(zip(container, values, strict=True)))),
}
OBJECT = Container(lambda container: [getattr(container, name) for name in fields_of(container)],
                   lambda container: [f".{name}" for name in fields_of(container)], remake_object)


# What users registered: the functions flatten and unflatten, by the type.
Functions = tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]
REGISTERED: dict[type[Any], Functions] = {}


def container_of(thing: Any) -> Container | None:
    """The Container for something; None if it contains nothing."""
    described = described_container(thing)
    if described is not None:
        return described
    for base in type(thing).__mro__:
        if base in CONTAINERS:
            return CONTAINERS[base]
    return OBJECT if fields_of(thing) else registered_container(thing)


def described_container(thing: Any) -> Container | None:
    """The Container for a type that a user registered, or a library's facts describe; None for others."""
    kind: Any = type(thing)
    functions = functions_of(kind)
    return None if functions is None else container_with(thing, *functions)


def is_of_containers(kind: type[Any]) -> bool:
    """Whether the instances of a type are containers, beside those that are registered.

    This is called on the way to an error, so it makes no function: CPython 3.13.0 ends if it has no memory for one.
    """
    for base in kind.__mro__:
        if base in CONTAINERS:
            return True
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__attrs_attrs__") or hasattr(
        kind, "__pydantic_fields__")


def registered_container(thing: Any) -> Container | None:
    """The Container for a type that is registered, here or with a library; None for others."""
    described = described_container(thing)
    if described is not None:
        return described
    for name, unflatten in WALKERS.items():
        walker = sys.modules.get(name)
        container = None if walker is None else container_by(walker, unflatten, thing)
        if container is not None:
            return container
    return None


@functools.lru_cache(maxsize=256)
def functions_of(kind: type[Any]) -> Functions | None:
    """What takes the instances of a type apart, and makes them again; or None."""
    for base in kind.__mro__:
        if base in REGISTERED:
            return REGISTERED[base]
    functions: Functions | None = Facts(kind).container_functions(kind)
    return functions


def container_with(thing: Any, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> Container:
    """How a container is made again that is taken apart here, once, into a dictionary or a sequence."""
    parts, is_read = flatten(thing), unflatten is keep_as_dict
    if isinstance(parts, dict):
        names, values = list(parts), list(parts.values())
        return Container(lambda container: values, lambda container: keys(names),
                         lambda container, given: unflatten(container, dict(zip(names, given, strict=True))), True,
                         is_read)
    if not isinstance(parts, (list, tuple)):
        raise TypeError(f"register_container: flatten of {full_name(type(thing))}: gave {shown(parts)}, which is "
                        "neither a dictionary nor a sequence (return a dict, a list or a tuple)")
    return Container(lambda container: parts, lambda container: places(parts), unflatten, True)


def container_by(walker: Any, unflatten: Callable[[Any, Any, list[Any]], Any], thing: Any) -> Container | None:
    """How a container is made again that a library takes apart here, once, by the structure that it has then.

    So a container is never made of placeholders, but only of the converted values. An error of the container's own
    functions is raised as it is.
    """
    whole = [thing]             # emptied, since torch's function keeps what it is given in a cycle
    try:
        values, structure = walker.tree_flatten(thing, is_leaf=lambda value: value is not whole[0])
    finally:
        whole.clear()
    if len(values) == 1 and values[0] is thing:
        return None
    return Container(lambda container: values, lambda container: [f"<{index}>" for index in range(len(values))],
                     lambda container, given: unflatten(walker, structure, given))
