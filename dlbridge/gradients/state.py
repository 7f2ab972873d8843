"""What a function of torch keeps beside its result, put back after a run whose tensors have no values.

A module that keeps a tensor for its next call would keep one without values. What is put back are the attributes of the
modules, and the dictionaries and lists, that the function is, is closed over, or names as global variables.
"""

import contextlib
import functools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

DEPTH = 3           # functions that functions are closed over


@contextlib.contextmanager
def put_back(function: Callable[..., Any]) -> Iterator[None]:
    kept: dict[int, tuple[Any, Any]] = {}
    for thing in reached_from(function, DEPTH):
        if isinstance(thing, torch.nn.Module):
            for module in thing.modules():
                for container in (vars(module), *vars(module).values()):
                    remember(container, kept)
        else:
            remember(thing, kept)
    try:
        yield
    finally:
        for container, before in kept.values():
            restore(container, before)


def remember(container: Any, kept: dict[int, tuple[Any, Any]]) -> None:
    if type(container) in (dict, list):
        kept[id(container)] = container, container.copy()


def restore(container: Any, before: Any) -> None:
    """Put back what differs, and nothing else: another thread may use the container."""
    if isinstance(container, list):
        if len(container) != len(before) or not all(map(operator.is_, container, before)):
            container[:] = before
        return
    for key in container.keys() - before.keys():
        del container[key]
    for key, value in before.items():
        if container.get(key, before) is not value:
            container[key] = value


def reached_from(thing: Any, depth: int) -> Iterator[Any]:
    if isinstance(thing, functools.partial):
        for each in (thing.func, *thing.args, *thing.keywords.values()):
            yield from reached_from(each, depth)
    elif isinstance(thing, types.MethodType):
        yield from reached_from(thing.__self__, depth)
        yield from reached_from(thing.__func__, depth)
    elif isinstance(thing, types.FunctionType):
        if depth:
            for each in named_in(thing):
                yield from reached_from(each, depth - 1)
    elif isinstance(thing, torch.nn.Module) or type(thing) in (dict, list):
        yield thing


def named_in(function: types.FunctionType) -> Iterator[Any]:
    """The values of the variables that a function is closed over, and of the global ones that it names."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):       # it has no value yet
            yield cell.cell_contents
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]
