"""What ``accepts(…, callback=True)`` does while JAX traces a call: JAX calls the function later, when it has values."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dlbridge.errors import DLBridgeError, UnsupportedError, refusal, shown
from dlbridge.gradients.forms import NUMBERS, put_in, take_out
from dlbridge.trees import boundary

VMAP_METHODS = "sequential", "expand_dims", "broadcast_all"     # of jax.pure_callback


def accepts(
    to: Any, returns: str | None, others: str, columns: str, keywords: dict[str, Any], callback: Any,
) -> Callable[[Any], Any]:
    """Make a decorator, as :func:`dlbridge.accepts` with ``callback``."""
    if callback is not True and not callable(callback):
        raise TypeError(f"accepts: callback {shown(callback)}: is neither a bool nor a function (pass True)")
    if returns is None:
        raise ValueError('accepts: returns None: would give arrays of another library than JAX (pass returns="like")')
    method = keywords.pop("vmap_method", VMAP_METHODS[0])
    if method not in VMAP_METHODS:
        raise ValueError(f"accepts: vmap_method {shown(method)}: is none of JAX's (pass "
                         f"{' or '.join(map(repr, VMAP_METHODS))})")
    plainly = boundary.accepts(to, returns, others, columns, keywords)

    def decorate(function: Any) -> Any:
        boundary.check_decorated(function)
        if boundary.is_asynchronous(function):
            raise TypeError(f"accepts: function {shown(function)}: is a coroutine function, which JAX cannot call "
                            "(leave out callback=)")
        plain = plainly(function)
        bound = boundary.first_parameter(function) in ("self", "cls")

        @functools.wraps(function)
        def call(*positional: Any, **named: Any) -> Any:
            if "jax" in sys.modules:
                form, arrays = take_out([list(positional[bound:]), named], is_of_jax)
                if any(map(is_traced, arrays)):
                    traced = TracedCall(functools.partial(plain, *positional[:bound]), form)
                    foreseen = traced.foreseen(arrays) if callback is True else callback(*positional, **named)
                    return traced(arrays, foreseen, method)
            return plain(*positional, **named)

        return call

    return decorate


def is_of_jax(leaf: Any) -> bool:
    return isinstance(leaf, sys.modules["jax"].Array)


def is_traced(array: Any) -> bool:
    return isinstance(array, sys.modules["jax"].core.Tracer)


class TracedCall:
    """A call with arrays that have no values yet. ``form`` is its arguments, with slots in place of these arrays."""

    def __init__(self, function: Callable[..., Any], form: Any) -> None:
        self.function = function
        self.form = form

    def __call__(self, arrays: list[Any], foreseen: Any, vmap_method: str) -> Any:
        import jax

        leaves, structure = jax.tree.flatten(foreseen)
        results = jax.pure_callback(self.values, tuple(leaves), *arrays, vmap_method=vmap_method)
        return jax.tree.unflatten(structure, results)

    def values(self, *arrays: Any) -> tuple[Any, ...]:
        """What JAX calls: the arrays that the function gives, as ndarrays."""
        import jax

        return tuple(map(np.asarray, jax.tree.leaves(self.run([np.asarray(array) for array in arrays]))))

    def run(self, arrays: list[Any]) -> Any:
        positional, named = put_in(self.form, arrays)
        return self.function(*positional, **named)

    def foreseen(self, arrays: list[Any]) -> Any:
        """The shapes and dtypes of the results, which zeros in place of the arrays give."""
        import jax

        with jax.ensure_compile_time_eval():
            zeros = [jax.numpy.zeros(array.shape, array.dtype) for array in arrays]
            try:
                results = self.run(zeros)
            except DLBridgeError:
                raise
            except Exception as error:
                raise refusal(
                    UnsupportedError, "accepts", "callback", True,
                    f"calls the function with zeros to see what it gives, which raised {type(error).__name__}: {error}",
                    "pass a function that gives the jax.ShapeDtypeStruct of each result: "
                    "callback=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)") from error
            return jax.tree.map(shape_of, results)


def shape_of(result: Any) -> Any:
    """The shape and dtype of a result."""
    import jax

    if not isinstance(result, (jax.Array, *NUMBERS)):
        raise refusal(UnsupportedError, "accepts", "result", f"of type {shown(type(result))}",
                      "is no array, which is all that jax.jit gives", "leave it out")
    array = jax.numpy.asarray(result)
    return jax.ShapeDtypeStruct(array.shape, array.dtype)  # type: ignore[no-untyped-call, unused-ignore]
