"""What ``accepts`` does in a function that ``torch.compile`` compiles.

torch's compiler follows Python, and ends its graph at code that is compiled already, as dlbridge's. So it is decided
here, in plain Python, that nothing is converted: then the graph goes on.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from dlbridge.convert import convert

VALUES = int, float, bool, complex, str, bytes, type(None)


class Hidden:
    """A function that torch's compiler does not look into, made with the first call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.hidden: Callable[..., Any] | None = None

    def __reduce__(self) -> Any:
        return Hidden, (self.function,)         # what torch made stays in this process

    def __call__(self, *given: Any) -> Any:
        if self.hidden is None:
            self.hidden = sys.modules["torch"].compiler.disable(self.function)
        return self.hidden(*given)


def substitute() -> None:
    """Let torch's compiler take ``convert(tensor, "torch")`` for the tensor, and break its graph at any other call."""
    import torch

    if not hasattr(torch.compiler, "substitute_in_graph"):      # before 2.6
        return
    not_followed = torch.compiler.disable(convert)  # type: ignore[no-untyped-call, unused-ignore]

    @torch.compiler.substitute_in_graph(convert, skip_signature_check=True)  # type: ignore[untyped-decorator, unused-ignore]
    def followed(src: Any, to: Any, **keywords: Any) -> Any:
        if not keywords and type(src) in (torch.Tensor, torch.nn.Parameter) and (
                to == "torch" if type(to) is str else to is torch or to is torch.Tensor):
            return src
        return not_followed(src, to, **keywords)


class CompiledCall:
    """A call of a function behind ``accepts``, with arguments that may be handed on as they are."""

    def __init__(self, boundary: Any, passes: bool) -> None:
        """Of a ``Boundary``. ``passes``: whether tensors are handed on."""
        self.boundary, self.passes = boundary, passes
        self.inward, self.outward = Hidden(self.begin), Hidden(boundary.outward)

    def begin(self, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
        """What the result shall be like, and the arguments."""
        return self.boundary.first(positional, named), *self.boundary.inward(positional, named)

    def __call__(self, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        torch = sys.modules["torch"]
        tensors = torch.Tensor, torch.nn.Parameter      # by exact type: a subclass may be a container
        function, bound = self.boundary.function, self.boundary.bound
        given = as_they_are((*positional[bound:], named), tensors) if self.passes else None
        if given is None:
            like, arguments, by_name = self.inward(positional, named)
            result = function(*arguments, **by_name)
            return result if like is None else self.outward(result, like)
        *arguments, by_name = given
        result = function(*positional[:bound], *arguments, **by_name)
        like = None if self.boundary.back is None else first_tensor(given, tensors)
        if like is None:
            return result
        there = as_they_are((result,), tensors, like.device)
        return self.outward(result, like) if there is None else there[0]


def as_they_are(values: Iterable[Any], tensors: tuple[type[Any], ...], device: Any = None) -> list[Any] | None:
    """The values, if they are tensors, of a device if one is given, numbers and texts alone.

    Containers of them are made anew, as elsewhere.
    """
    made: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in VALUES or (kind in tensors and (device is None or value.device == device)):
            made.append(value)
        elif kind in (list, tuple, dict):
            parts = as_they_are(value.values() if kind is dict else value, tensors, device)
            if parts is None:
                return None
            made.append(dict(zip(value, parts, strict=True)) if kind is dict else kind(parts))
        else:
            return None
    return made


def first_tensor(values: Iterable[Any], tensors: tuple[type[Any], ...]) -> Any:
    for value in values:
        kind = type(value)
        if kind in tensors:
            return value
        if kind in (list, tuple, dict):
            found = first_tensor(value.values() if kind is dict else value, tensors)
            if found is not None:
                return found
    return None
