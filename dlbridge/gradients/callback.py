"""What ``accepts(…, callback=True)`` does while JAX traces a call: JAX calls the function later, when it has values."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dlbridge.convert import convert
from dlbridge.errors import ConversionError, DLBridgeError, UnsupportedError, refusal, shown
from dlbridge.gradients.crossings import take_vmap_method
from dlbridge.gradients.forms import NUMBERS, put_in, take_out
from dlbridge.trees import boundary
from dlbridge.trees.leaf import ARRAY, role_of


def accepts(
    to: Any, returns: str | None, others: str, columns: str, keywords: dict[str, Any], callback: Any,
) -> Callable[[Any], Any]:
    """Make a decorator, as :func:`dlbridge.accepts` with ``callback``."""
    if callback is not True and not callable(callback):
        raise TypeError(f"accepts: callback {shown(callback)}: is neither a bool nor a function (pass True)")
    if returns is None:
        raise ValueError('accepts: returns None: would give arrays of another library than JAX (pass returns="like")')
    method = take_vmap_method(keywords)
    narrow = keywords.get("narrow", False)
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
            if "jax" in sys.modules and not ("torch._dynamo" in sys.modules and boundary.is_compiling()):
                form, arrays = take_out([list(positional[bound:]), named], is_of_jax)
                if any(map(is_traced, arrays)):
                    traced = TracedCall(functools.partial(plain, *positional[:bound]), form, narrow)
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

    def __init__(self, function: Callable[..., Any], form: Any, narrow: bool) -> None:
        self.function = function
        self.form = form
        self.narrow = narrow

    def __call__(self, arrays: list[Any], foreseen: Any, vmap_method: str) -> Any:
        import jax

        leaves, structure = jax.tree.flatten(foreseen)
        values = functools.partial(self.values, leaves, structure)
        results = jax.pure_callback(values, tuple(leaves), *arrays, vmap_method=vmap_method)
        return jax.tree.unflatten(structure, results)

    def values(self, foreseen: list[Any], structure: Any, *arrays: Any) -> tuple[Any, ...]:
        """What JAX calls: the results as ndarrays, all of which are as they were foreseen."""
        import jax

        ndarrays = [convert(array, "numpy", device="cpu", readonly="share") for array in arrays]
        results, seen = jax.tree.flatten(self.run(ndarrays))
        if seen != structure:
            raise refusal(ConversionError, "accepts", "result", seen, f"is not of the form {structure}, as foreseen",
                          "return the same form for all values")
        return tuple(map(self.value, results, foreseen))

    def value(self, result: Any, foreseen: Any) -> Any:
        """A result in the type that was foreseen, if nothing is lost; batches have more axes in front."""
        number = isinstance(result, NUMBERS)
        array = np.array(result) if number else convert(result, "numpy", device="cpu", readonly="share")
        if array.shape[array.ndim - len(foreseen.shape):] != foreseen.shape:
            raise refusal(ConversionError, "accepts", "shape", array.shape, f"is not {foreseen.shape}, as foreseen",
                          "return the same shape for all values")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype == foreseen.dtype:
            return array
        alike = array.dtype.kind == foreseen.dtype.kind or (number and array.dtype.kind != "b")
        if not (alike and (number or self.narrow) and np.can_cast(array.dtype, foreseen.dtype, "same_kind")):
            raise refusal(ConversionError, "accepts", "dtype", array.dtype, f"is not {foreseen.dtype}, as foreseen",
                          "return the same dtype for all values")
        with np.errstate(over="ignore"):
            narrow = array.astype(foreseen.dtype)
        lost = np.isfinite(array) != np.isfinite(narrow) if array.dtype.kind in "fc" else array != narrow
        if lost.any():
            raise refusal(ConversionError, "accepts", "result", array[lost][0], f"does not fit into {foreseen.dtype}",
                          'call jax.config.update("jax_enable_x64", True)')
        return narrow

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
            return jax.tree.map(self.shape_of, results)

    def shape_of(self, result: Any) -> Any:
        """The shape and dtype of a result, which becomes an array of JAX, also where the first argument is none."""
        import jax

        if isinstance(result, NUMBERS):
            array = jax.numpy.array(result)
        elif role_of(result) == ARRAY:
            array = convert(result, "jax", device="cpu", narrow=self.narrow)
        else:
            raise refusal(UnsupportedError, "accepts", "result", f"of type {shown(type(result))}",
                          "is no array, which is all that jax.jit gives", "leave it out")
        return jax.ShapeDtypeStruct(array.shape, array.dtype)  # type: ignore[no-untyped-call, unused-ignore]
