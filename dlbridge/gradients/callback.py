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
from dlbridge.trees.boundary import Boundary, check_decorated, is_asynchronous, is_compiling
from dlbridge.trees.boundary import accepts as accepts_plainly
from dlbridge.trees.leaves import takers


def accepts(
    to: Any, returns: str | None, others: str, columns: str, keywords: dict[str, Any], callback: Any,
) -> Callable[[Any], Any]:
    """Make a decorator, as :func:`dlbridge.accepts` with ``callback``."""
    if callback is not True and not callable(callback):
        raise TypeError(f"accepts: callback {shown(callback)}: is neither a bool nor a function (pass True)")
    if returns is None:
        raise ValueError('accepts: returns None: would give arrays of another library than JAX (pass returns="like")')
    method = take_vmap_method(keywords)
    plainly = accepts_plainly(to, returns, others, columns, keywords)
    take = takers("accepts", to, others, columns, keywords)
    # JAX calls it on the host, and copies what it gives.
    back = {name: keywords[name] for name in ("detach", "narrow") if name in keywords} | {
        "device": "cpu", "readonly": "share"}

    def decorate(function: Any) -> Any:
        check_decorated(function)
        if is_asynchronous(function):
            raise TypeError(f"accepts: function {shown(function)}: is a coroutine function, which JAX cannot call "
                            "(leave out callback=)")
        plain = plainly(function)
        inside = Boundary(function, take, back, hints_at_gradients=False, hands_on=False)

        @functools.wraps(function)
        def call(*positional: Any, **named: Any) -> Any:
            if "jax" in sys.modules and not ("torch._dynamo" in sys.modules and is_compiling()):
                form, arrays = take_out([list(positional[inside.bound:]), named], is_of_jax)
                if any(map(is_traced, arrays)):
                    if not all(map(is_no_key, arrays)):
                        raise refusal(UnsupportedError, "accepts", "callback", True, "has no keys of jax.random",
                                      "pass jax.random.key_data(x)")
                    traced = TracedCall(inside, positional[:inside.bound], form, keywords.get("narrow", False))
                    foreseen = traced.foreseen(arrays) if callback is True else callback(*positional, **named)
                    return traced(arrays, foreseen, method)
            return plain(*positional, **named)

        return call

    return decorate


def is_of_jax(leaf: Any) -> bool:
    return isinstance(leaf, sys.modules["jax"].Array)


def is_no_key(array: Any) -> bool:
    jax = sys.modules["jax"]
    return not jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def is_traced(array: Any) -> bool:
    return isinstance(array, sys.modules["jax"].core.Tracer)


class TracedCall:
    """A call with arrays that have no values yet. ``form`` is its arguments, with slots in place of these arrays."""

    def __init__(self, boundary: Boundary, bound: tuple[Any, ...], form: Any, narrow: bool) -> None:
        self.boundary = boundary
        self.bound = bound              # the object that the function is a method of
        self.form = form
        self.narrow = narrow

    def __call__(self, arrays: list[Any], foreseen: Any, vmap_method: str) -> Any:
        import jax

        leaves, structure = jax.tree.flatten(foreseen)
        for leaf in leaves:
            if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
                raise TypeError(f"accepts: callback {shown(leaf)}: is no jax.ShapeDtypeStruct (return one for each "
                                "result: callback=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))")
        values = functools.partial(self.values, leaves, structure, arrays[0].ndim)
        results = jax.pure_callback(values, tuple(leaves), *arrays, vmap_method=vmap_method)
        return jax.tree.unflatten(structure, results)

    def values(self, foreseen: list[Any], structure: Any, ndim: int, *arrays: Any) -> tuple[Any, ...]:
        """What JAX calls: the results as ndarrays, all of which are as they were foreseen.

        ``ndim``: the axes that the first array had. In a batch it has more, and so have all arrays and results.
        """
        import jax

        ndarrays = [convert(array, "numpy", device="cpu", readonly="share") for array in arrays]
        results, seen = jax.tree.flatten(self.run(ndarrays, "numpy"))
        if seen != structure:
            raise refusal(ConversionError, "accepts", "result", seen, f"is not of the form {structure}, as foreseen",
                          "return the same form for all values")
        more = ndarrays[0].ndim - ndim
        batch = tuple(max(sizes) for sizes in zip(*[array.shape[:more] for array in ndarrays], strict=True))
        return tuple(self.value(result, like, batch) for result, like in zip(results, foreseen, strict=True))

    def value(self, result: Any, foreseen: Any, batch: tuple[int, ...]) -> Any:
        """A result in the type that was foreseen, if nothing is lost, with the axes of a batch before the others."""
        number = isinstance(result, NUMBERS)
        array = result if isinstance(result, np.ndarray) else np.array(result)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        shape = *batch, *foreseen.shape
        if array.shape != shape:
            raise refusal(ConversionError, "accepts", "shape", array.shape, f"is not {shape}, as foreseen",
                          'return a result for each of the batch, or pass vmap_method="sequential"' if batch else
                          "return the same shape for all values")
        if array.dtype == foreseen.dtype:
            return array
        alike = array.dtype.kind == foreseen.dtype.kind or (number and array.dtype.kind != "b")
        if not (alike and (number or self.narrow) and np.can_cast(array.dtype, foreseen.dtype, "same_kind")):
            raise refusal(ConversionError, "accepts", "dtype", array.dtype, f"is not {foreseen.dtype}, as foreseen",
                          "return the same dtype for all values")
        with np.errstate(over="ignore"):
            narrow = array.astype(foreseen.dtype)
        if array.dtype.kind in "fc":
            lost = np.isfinite(array) != np.isfinite(narrow)
        else:
            # Python compares its integers exactly, NumPy as float64.
            lost = np.array(narrow.item() != result) if number else narrow != array
        if lost.any():
            raise refusal(ConversionError, "accepts", "result", array[lost][0], f"does not fit into {foreseen.dtype}",
                          'call jax.config.update("jax_enable_x64", True)')
        return narrow

    def run(self, arrays: list[Any], to: str) -> Any:
        """The results as arrays of a library."""
        positional, named = put_in(self.form, arrays)
        arguments, by_name = self.boundary.inward((*self.bound, *positional), named)
        return self.boundary.outward(self.boundary.function(*arguments, **by_name), to)

    def foreseen(self, arrays: list[Any]) -> Any:
        """The shapes and dtypes of the results, which zeros in place of the arrays give."""
        import jax

        with jax.ensure_compile_time_eval():
            zeros = [jax.numpy.zeros(array.shape, array.dtype) for array in arrays]
            try:
                results = self.run(zeros, "jax")
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
                      "is no array of numbers, which is all that jax.jit gives", "leave it out")
    try:
        array = jax.numpy.array(result)
    except OverflowError:
        raise refusal(ConversionError, "accepts", "result", result, "does not fit into int32",
                      'call jax.config.update("jax_enable_x64", True)') from None
    return jax.ShapeDtypeStruct(array.shape, array.dtype)  # type: ignore[no-untyped-call, unused-ignore]
