"""What ``accepts(…, gradients=True)`` does: a call is made through the autograd of the library that it comes from."""

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from dlbridge._core.late import load_module
from dlbridge._core.route import target_name
from dlbridge.errors import UnsupportedError, refusal, shown
from dlbridge.gradients.forms import take_out
from dlbridge.trees.boundary import (
    DIFFERENTIABLE,
    Boundary,
    check_decorated,
    check_decorator,
    hands_tensors_on,
    is_asynchronous,
    is_compiling,
)
from dlbridge.trees.failure import Failure
from dlbridge.trees.leaf import ARRAY, OTHER
from dlbridge.trees.leaves import Memo, Takers, takers

# By the library of the function: the one that it is called from, its arrays, and what calls it with these.
CROSSINGS = {
    "jax": ("torch", "Tensor", "dlbridge.gradients.of_jax", "FunctionForTensors"),
    "torch": ("jax", "Array", "dlbridge.gradients.of_torch", "FunctionForArrays"),
}
VMAP_METHODS = ("sequential", "expand_dims", "broadcast_all")       # of jax.pure_callback


def accepts(
    to: Any, returns: str | None, others: str, columns: str, keywords: dict[str, Any],
) -> Callable[[Any], Any]:
    """Make a decorator, as :func:`dlbridge.accepts` with ``gradients=True``."""
    check_decorator(to, returns)
    inside = target_name(to, imported=False)
    ways = {"vmap_method": take_vmap_method(keywords)} if inside == "torch" else {}
    hands_on = others == "pass" if inside == "jax" else hands_tensors_on(to, others, keywords)
    take = takers("accepts", to, others, columns, keywords)
    check_gradients(inside, returns, keywords)
    back = {name: value for name, value in keywords.items() if name not in ("device", "stream")}

    def decorate(function: Any) -> Any:
        check_decorated(function)
        if is_asynchronous(function):
            raise TypeError(f"accepts: function {shown(function)}: is a coroutine function, which has no gradients "
                            "(leave out gradients=)")
        crossing = Crossing(function, inside, {**keywords, **ways})
        boundary = Boundary(function, crossing.passing(take), back, hints_at_gradients=False, hands_on=hands_on)

        def cross(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            arguments, by_name = boundary.inward(given, named)
            bound, others = tuple(arguments[:boundary.bound]), arguments[boundary.bound:]
            if not crossing.is_needed(others, by_name):
                like = boundary.first(given, named)
                return boundary.outward(function(*arguments, **by_name), like)
            try:
                return crossing.function(bound, others, by_name)
            except Failure as failure:
                boundary.report(failure, given, named)

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            if "torch._dynamo" in sys.modules:
                return call_beside_dynamo(cross, crossing, boundary, given, named)
            return cross(given, named)

        return call

    return decorate


def call_beside_dynamo(
    cross: Callable[..., Any], crossing: "Crossing", boundary: Boundary, given: tuple[Any, ...], named: dict[str, Any],
) -> Any:
    """What torch's compiler follows of a call. It would look into the code of JAX, too."""
    from dlbridge.trees.compiled import as_it_is, call_whole

    made = None
    if is_compiling() and crossing.inside == "torch":
        made = call_whole(boundary, given, named)
    elif is_compiling() and boundary.hands_on and not boundary.bound:
        from dlbridge.gradients.compiled import call_as_operator
        made = call_as_operator(crossing, given, named)
    if made is not None:
        return made[0]
    return as_it_is(cross, given, named)


def check_gradients(inside: str, returns: str | None, keywords: dict[str, Any]) -> None:
    if inside not in DIFFERENTIABLE:
        raise refusal(UnsupportedError, "accepts", "gradients", True,
                      f"is for functions of {' and '.join(DIFFERENTIABLE)}; {inside} has none that are carried",
                      'write the function in jax.numpy, for to="jax", or leave out gradients=')
    if returns is None:
        raise ValueError('accepts: returns None: would leave the gradients where they are (pass returns="like")')
    if keywords.get("detach"):
        raise ValueError("accepts: detach True: ends the gradients that gradients=True wants (leave one out)")


def take_vmap_method(keywords: dict[str, Any]) -> str:
    """Take the keyword out."""
    method: str = keywords.pop("vmap_method", VMAP_METHODS[0])
    if method not in VMAP_METHODS:
        raise ValueError(f"accepts: vmap_method {shown(method)}: is none of JAX's (pass "
                         f"{' or '.join(map(repr, VMAP_METHODS))})")
    return method


class Crossing:
    """The way of the calls of a function that come from another library with gradients."""

    def __init__(self, function: Any, inside: str, keywords: dict[str, Any]) -> None:
        self.given = function, keywords
        self.inside = inside
        self.made: Any = None
        self.outside, self.kind, self.module, self.name = CROSSINGS[inside]

    def __reduce__(self) -> Any:
        """What was compiled stays in this process."""
        function, keywords = self.given
        return Crossing, (function, self.inside, keywords)

    @property
    def function(self) -> Any:
        """The function as the library outside calls it, made with the first such call."""
        if self.made is None:
            for library in ("torch", "jax.numpy"):      # which load_module() is not to import under its lock
                importlib.import_module(library)
            made = getattr(load_module(self.module), self.name)(*self.given)
            self.made = self.made or made       # another thread may have been quicker
        return self.made

    def is_of_caller(self, array: Any) -> bool:
        library = sys.modules.get(self.outside)
        return library is not None and isinstance(array, getattr(library, self.kind))

    def passing(self, take: Takers) -> Takers:
        """The takers, but for arrays of the library outside, and those of JAX, which may be traced."""
        def passes(leaf: Any) -> bool:
            jax = sys.modules.get("jax")
            return self.is_of_caller(leaf) or (jax is not None and isinstance(leaf, jax.Array))

        def passed(taker: Callable[[Any, Memo], Any]) -> Callable[[Any, Memo], Any]:
            return lambda leaf, memo: leaf if passes(leaf) else taker(leaf, memo)

        return {**take, ARRAY: passed(take[ARRAY]), OTHER: passed(take[OTHER])}

    def is_needed(self, arguments: list[Any], by_name: dict[str, Any]) -> bool:
        return any(map(self.is_of_caller, arguments)) or bool(take_out([arguments, by_name], self.is_of_caller)[1])
