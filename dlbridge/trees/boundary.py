"""What ``accepts`` does: a call's arguments go in, and its result comes out."""

import functools
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType
from typing import Any, NoReturn, ParamSpec, TypeGuard, TypeVar

import numpy as np

from dlbridge._core.calls import OF_TREES
from dlbridge._core.route import target_name
from dlbridge.convert import convert
from dlbridge.errors import (
    ConversionError,
    CopyRequiredError,
    DLBridgeError,
    UnsupportedError,
    full_name,
    refusal,
    shown,
)
from dlbridge.libraries.library import Facts
from dlbridge.trees.containers import container_of
from dlbridge.trees.failure import Failure, name_copies, report
from dlbridge.trees.leaf import ARRAY, FORM, OTHER, TABLE, role_of
from dlbridge.trees.leaves import AS_THEY_ARE, Memo, Takers, convert_alike, has_texts, is_several, taker, takers
from dlbridge.trees.walk import give_values, has_numbers, map_leaves
from dlbridge.watch import note_by_library, pending, watching

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

DIFFERENTIABLE = ("torch", "jax")       # accepts(…, gradients=True) is for functions of these
HINTS_AT_GRADIENTS = {
    "requires_grad": 'pass gradients=True and returns="like" to dlbridge.accepts, or detach=True to end the gradient',
    "is_traced": 'pass gradients=True, or callback=True, and returns="like" to dlbridge.accepts',
}
HINT_AT_CALLBACK = 'pass callback=True and returns="like" to dlbridge.accepts'
KEYWORD = re.compile(rf'pass (?:{"|".join(OF_TREES)})=[\w"]+')


def accepts(
    to: Any, returns: str | None, others: str, columns: str, keywords: dict[str, Any],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Any]]:
    """Make a decorator, as :func:`dlbridge.accepts`."""
    check_decorator(to, returns)
    take = takers("accepts", to, others, columns, keywords)
    target = target_name(to, imported=False)
    hands_on = hands_tensors_on(to, others, keywords)
    # The result goes to the device of the first array, so device= and stream= do not hold for it.
    back = {name: value for name, value in keywords.items() if name not in ("device", "stream")}

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Any]:
        check_decorated(function)
        boundary = Boundary(function, take, back if returns else None, target in DIFFERENTIABLE, hands_on)

        if is_asynchronous(function):
            @functools.wraps(function)
            async def wait(*positional: Parameters.args, **named: Parameters.kwargs) -> Any:
                like, arguments, by_name = boundary.begin(positional, named)
                return boundary.outward(await function(*arguments, **by_name), like)

            return wait

        @functools.wraps(function)
        def call(*positional: Parameters.args, **named: Parameters.kwargs) -> Any:
            if "torch._dynamo" in sys.modules and is_compiling():
                from dlbridge.trees import compiled
                return compiled.call(boundary, positional, named)
            like, arguments, by_name = boundary.begin(positional, named)
            return boundary.outward(function(*arguments, **by_name), like)

        return call

    return decorate


def is_compiling() -> bool:
    """Whether torch.compile follows this call. To be asked where Dynamo is loaded."""
    return bool(sys.modules["torch"].compiler.is_compiling())


def hands_tensors_on(to: Any, others: str, keywords: dict[str, Any]) -> bool:
    """Whether each tensor of torch is handed on as it is. An example names a device, too."""
    return (target_name(to, imported=False) == "torch" and others == "pass" and not keywords
            and isinstance(to, (str, type, ModuleType)))


def check_decorator(to: Any, returns: Any) -> None:
    if returns not in (None, "like"):
        raise ValueError(f'accepts: returns {shown(returns)}: is neither None nor "like" (pass one)')
    if inspect.isroutine(to):
        raise TypeError(f'accepts: to {shown(to)}: is the function itself (write @dlbridge.accepts("torch") above it)')


def check_decorated(function: Any) -> None:
    if not callable(function) or isinstance(function, staticmethod):
        raise TypeError(f"accepts: function {shown(function)}: cannot be called (put @classmethod, @staticmethod or "
                        "@property above @dlbridge.accepts)")


class Boundary:
    """What is done with the arguments of a function, and with its result."""

    def __init__(
        self, function: Callable[..., Any], take: Takers, back: dict[str, Any] | None, hints_at_gradients: bool,
        hands_on: bool,
    ) -> None:
        """``back`` has the keywords for the result; None leaves it as it is. ``hands_on``: tensors are handed on."""
        self.function = function
        self.hands_on = hands_on
        self.hints_at_gradients = hints_at_gradients
        self.take = take
        self.back = back
        self.bound = first_parameter(function) in ("self", "cls")
        name = getattr(function, "__name__", None)
        name = name if isinstance(name, str) else type(function).__name__
        self.name = name.replace("{", "{{").replace("}", "}}")

    def begin(self, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
        """What the result shall be like, and the arguments."""
        like = self.first(positional, named)
        return like, *self.inward(positional, named)

    def first(self, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The first array that the function is called with, if its result shall be like it."""
        if self.back is None:
            return None
        found = first_array((*positional[self.bound:], *named.values()) if named else positional[self.bound:])
        found = np.ndarray if isinstance(found, np.generic) else found
        return found if found is None else self.checked(found)

    def checked(self, like: Any) -> Any:
        """Refuse an array whose library dlbridge makes no arrays of, before the function runs."""
        try:
            target_name(like)
            return like
        except UnsupportedError as error:
            make = Facts(type(like)).made_like
            if make is not None and self.back is not None:
                if self.back.get("copy") is False:
                    raise refusal(CopyRequiredError, "accepts", 'returns "like"', error.value, "is made by a copy of "
                                  "the values, and copy=False forbids it", "leave out copy= or returns=") from None
                return MadeLike(like, make, self.back)
            raise refusal(UnsupportedError, "accepts", 'returns "like"', error.value, error.wrong,
                          'call it with dlbridge.convert(x, "numpy"), or leave out returns=') from None

    def inward(self, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        take = self.take
        memo: Memo = {}
        try:
            arguments = give_values(take, positional[self.bound:], memo)
            by_name = {name: map_leaves(take, value, memo) for name, value in named.items()} if named else named
        except Failure as failure:
            self.report(failure, positional, named)
        finally:
            if pending:
                name_copies(named_arguments(self.function, positional, named)[self.bound:])
        return [*positional[:1], *arguments] if self.bound else arguments, by_name

    def report(self, failure: Failure, positional: tuple[Any, ...], named: dict[str, Any]) -> NoReturn:
        """Raise the error of an argument, by the names of the function and of its parameter."""
        report(failure, named_arguments(self.function, positional, named)[self.bound:], hint_of=self.hint,
               call=f"{self.name}({{}})")

    def hint(self, error: DLBridgeError) -> str:
        """The hint for whoever wrote the decorator, whose keywords they are."""
        if self.hints_at_gradients and error.field in HINTS_AT_GRADIENTS:
            return HINTS_AT_GRADIENTS[error.field]
        if error.field == "is_traced":
            return HINT_AT_CALLBACK
        return KEYWORD.sub(r"\g<0> to dlbridge.accepts", error.hint)

    def outward(self, result: Any, like: Any) -> Any:
        if like is None or self.back is None:
            return result
        made_like = type(like) is MadeLike
        try:
            if role_of(result) == ARRAY and not is_several(like):
                return like(result) if made_like else convert(result, like, **self.back) if self.back else convert(
                    result, like)
            give = taker(like, "numpy", "pass") if made_like else convert_alike(like, self.back)
            return map_leaves({**AS_THEY_ARE, ARRAY: give, FORM: AS_THEY_ARE[FORM] if made_like else give}, result, {})
        except DLBridgeError as error:
            if has_texts(result):
                return result
            report(Failure(result, error), [("result", result)], hint_of=self.hint, call=f"{self.name}, {{}}")
        except Failure as failure:
            report(failure, [("result", result)], hint_of=self.hint, call=f"{self.name}, {{}}")
        finally:
            if pending:
                name_copies([("result", result)])


class MadeLike:
    """A function of a result that shall be like an array of a library that is a source only, such as a Series."""

    def __init__(self, like: Any, make: Callable[[Any, Any], Any], keywords: dict[str, Any]) -> None:
        self.like = like
        self.make = make
        self.keywords = keywords

    def __call__(self, result: Any) -> Any:
        array = convert(result, "numpy", device="cpu", **self.keywords)
        if array.ndim == 0:
            return array[()]
        if array.ndim > 1:
            raise refusal(ConversionError, "accepts", "shape", array.shape, f"has {array.ndim} axes, and "
                          f"{full_name(type(self.like))} has one", "return one axis, or a tuple of several arrays")
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if watching:
            note_by_library(result, full_name(type(self.like)), array.nbytes, "values are copied into a new one",
                            'leave out returns="like"', "")
        return self.make(self.like, array)


def is_asynchronous(function: Callable[..., Any]) -> TypeGuard[Callable[..., Awaitable[Any]]]:
    """Whether a call gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def first_parameter(function: Callable[..., Any]) -> str:
    """The name of a function's first parameter, or nothing: not every builtin says its parameters."""
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except ValueError:
        return ""


def named_arguments(
    function: Callable[..., Any], positional: tuple[Any, ...], named: dict[str, Any],
) -> list[tuple[str, Any]]:
    """The arguments of a call by the names of the parameters, or by their places."""
    try:
        return list(inspect.signature(function).bind(*positional, **named).arguments.items())
    except (TypeError, ValueError):
        return [(f"[{index}]", value) for index, value in enumerate(positional)] + list(named.items())


def first_array(values: Iterable[Any]) -> Any:
    """The first array in some values, which may be containers; or None."""
    for value in values:
        role = role_of(value)
        if role in (TABLE, FORM) or (role == ARRAY and (has_numbers(value) or not has_texts(value))):
            return value
        container = container_of(value) if role == OTHER else None
        if container is not None and (found := first_array(container.values(value))) is not None:
            return found
    return None
