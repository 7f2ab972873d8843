"""What ``accepts`` does in a function that ``torch.compile`` compiles.

torch's compiler follows Python, and ends its graph at code that is compiled already, as dlbridge's. So it is decided
here, in plain Python, that nothing is converted: then the graph goes on. This module is imported with the first such
call.
"""

import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch

from dlbridge.convert import convert

VALUES = int, float, bool, complex, str, bytes, type(None)
HANDED_ON = *VALUES, torch.dtype, torch.device
TENSORS = torch.Tensor, torch.nn.Parameter      # by exact type: a subclass may be a container


# What torch says of a break, in versions that take it.
REASON = {"reason": "dlbridge.accepts: is no part of this graph; without fullgraph=True, an error says more"} if (
    "reason" in inspect.signature(torch.compiler.disable).parameters) else {}


@torch.compiler.disable(**REASON)  # type: ignore[arg-type, untyped-decorator, no-untyped-call, unused-ignore]
def as_it_is(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function into which torch's compiler does not look."""
    return function(*given)


def substitute() -> None:
    """Let torch's compiler take ``convert(tensor, "torch")`` for the tensor, and break its graph at any other call."""
    if not hasattr(torch.compiler, "substitute_in_graph"):      # before 2.6
        return
    not_followed = torch.compiler.disable(convert)  # type: ignore[no-untyped-call, unused-ignore]

    def followed(src: Any, to: Any, **keywords: Any) -> Any:
        if not keywords and type(src) in TENSORS and (
                to == "torch" if type(to) is str else to is torch or to is torch.Tensor):
            return src
        return not_followed(src, to, **keywords)

    with suppress(ValueError):      # a dlbridge that was imported before has said so
        torch.compiler.substitute_in_graph(convert, skip_signature_check=True)(followed)


def call(boundary: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call the function of a ``Boundary``."""
    made = call_whole(boundary, positional, named)
    if made is not None:
        return made[0]
    like, arguments, by_name = as_it_is(boundary.begin, positional, named)
    result = boundary.function(*arguments, **by_name)
    return result if like is None else as_it_is(boundary.outward, result, like)


def call_whole(boundary: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any] | None:
    """The result of a call whose arguments are handed on, alone in a tuple; None if anything is to be converted."""
    bound = boundary.bound
    given = as_they_are((*positional[bound:], named)) if boundary.hands_on else None
    if given is None:
        return None
    *arguments, by_name = given
    result = boundary.function(*positional[:bound], *arguments, **by_name)
    like = None if boundary.back is None else first_tensor(given)
    if like is None:
        return result,
    there = as_they_are((result,), like.device)
    return as_it_is(boundary.outward, result, like) if there is None else there[0],


def as_they_are(values: Iterable[Any], device: Any = None) -> list[Any] | None:
    """The values, if they are tensors, of a device if one is given, numbers and texts alone.

    Containers of them are made anew, as elsewhere.
    """
    made: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in HANDED_ON or (kind in TENSORS and (device is None or value.device == device)):
            made.append(value)
        elif kind in (list, tuple, dict):
            parts = as_they_are(value.values() if kind is dict else value, device)
            if parts is None:
                return None
            made.append(dict(zip(value, parts, strict=True)) if kind is dict else kind(parts))
        else:
            return None
    return made


def first_tensor(values: Iterable[Any]) -> Any:
    for value in values:
        kind = type(value)
        if kind in TENSORS:
            return value
        if kind in (list, tuple, dict):
            found = first_tensor(value.values() if kind is dict else value)
            if found is not None:
                return found
    return None
