"""Functions of JAX for tensors of torch: their results, with the gradients that JAX finds.

A function is compiled for each form of its arguments, together with what its gradients need. That is kept by a tensor
that torch saves, and releases. JAX computes while Python goes on, so on the host
each call waits for it before the memory of its tensors is the caller's again. On a device torch's stream waits for
JAX's results, and with them for what JAX reads.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from dlbridge.convert import convert
from dlbridge.errors import CopyRequiredError, DLBridgeError, UnsupportedError, refusal
from dlbridge.gradients.arrays import (
    KINDS,
    Arrays,
    check_constant,
    config,
    convert_leaf,
    has_x64,
    in_mode,
    is_array,
    is_array_or_float,
    is_inexact,
    is_key,
    is_traced,
    places_of,
    wait_for_host,
)
from dlbridge.gradients.forms import Slot, keep, key_of, put_in, put_in_result, take_out
from dlbridge.gradients.private import is_batched, is_transformed

Part = Callable[[Arrays], Any]


# ---- JAX's side ------------------------------------------------------------------------------------------------------

@jax.tree_util.register_pytree_node_class
class Rest:
    """What a function gives beside arrays with gradients: arrays without, random keys, and the form of it all."""

    def __init__(self, arrays: Arrays, keys: Arrays, form: Any) -> None:
        self.arrays = arrays
        self.keys = keys
        self.form = form

    def tree_flatten(self) -> tuple[tuple[Arrays, Arrays], "Form"]:
        return (self.arrays, self.keys), Form(self.form)

    @classmethod
    def tree_unflatten(cls, form: "Form", parts: tuple[Arrays, Arrays]) -> "Rest":
        return cls(*parts, form.tree)


class Form:
    """A form that is equal to itself alone: what is in it may be of any type."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree


def rank(array: Any) -> int:
    return 2 if is_key(array) else 0 if is_inexact(array) else 1


class Program:
    """A function of a list of arrays alone, with gradients for those at some places.

    It gives the arrays that have gradients, and the Rest.
    """

    def __init__(self, part: Part, places: tuple[int, ...], compiles: bool) -> None:
        self.part = part
        self.places = places
        self.compiles = compiles
        self.made: dict[Any, Program] = {}          # from this one
        compiled: Any = jax.jit if compiles else lambda function: function
        self.run = compiled(part)
        self.run_linearized = compiled(self.linearized)
        self.pull_back = compiled(pull_back)

    def linearized(self, arrays: Arrays) -> Any:
        """The results, the function that pulls their cotangents back, and the Rest."""
        def part(*chosen: Any) -> Any:
            given = list(arrays)
            for place, array in zip(self.places, chosen, strict=True):
                given[place] = array
            return self.part(given)

        return jax.vjp(part, *[arrays[place] for place in self.places], has_aux=True)

    def derivative(self, arrays: int, results: int) -> "Program":
        """The gradients as a function: of so many arrays, and then a cotangent for each of so many results."""
        def part(given: Arrays) -> tuple[Any, Rest]:
            _, vjp, _ = self.linearized(given[:arrays])
            return pull_back(vjp, given[arrays:]), Rest((), (), None)

        places = *self.places, *range(arrays, arrays + results)
        return self.made.setdefault(results, Program(part, places, self.compiles))

    def batched(self, axes: tuple[int | None, ...], size: int) -> "Program":
        """The function of batches, each of which has its axis at the number here; all results have theirs at 0."""
        part = jax.vmap(self.part, in_axes=(list(axes),), axis_size=size)
        return self.made.setdefault((axes, size), Program(part, self.places, self.compiles))


def pull_back(vjp: Any, cotangents: Arrays) -> tuple[Any, ...]:
    """The gradients by torch's convention for complex numbers, which is the conjugate of JAX's."""
    return tuple(jnp.conj(gradient) for gradient in vjp(tuple(jnp.conj(cotangent) for cotangent in cotangents)))


def by_arrays(function: Callable[..., Any], form: Any) -> Part:
    """A function of a list of arrays in place of one of positional and keyword arguments, of which the form is left."""
    def part(arrays: Arrays) -> tuple[Any, Rest]:
        arguments, by_name = put_in(form, arrays)
        result_form, results = take_out(function(*arguments, **by_name), is_array)
        order = sorted(range(len(results)), key=lambda index: rank(results[index]))
        result_form = put_in(result_form, [Slot(order.index(index)) for index in range(len(results))])
        ranked: Any = [], [], []
        for index in order:
            ranked[rank(results[index])].append(results[index])
        return tuple(ranked[0]), Rest(ranked[1], ranked[2], result_form)

    return part


# ---- torch's side ----------------------------------------------------------------------------------------------------

class Call:
    """A call of a Program with tensors at some places of its arrays, and what its gradients need beside tensors."""

    def __init__(self, program: Program, arrays: Arrays, places: tuple[int, ...], keywords: dict[str, Any]) -> None:
        self.program = program
        self.arrays = arrays            # of JAX, and Python's numbers; what is at the places is not used
        self.places = places
        self.keywords = keywords
        self.x64 = has_x64()
        # Set as it runs:
        self.form: Any = None           # of the results
        self.keys: Arrays = ()          # of them
        self.results = 0
        self.with_gradients = 0         # so many of the results, which are the first
        self.vjp: Any = None            # how the function that pulls back is made of the arrays that it needs

    def filled(self, tensors: Arrays) -> list[Any]:
        arrays = list(self.arrays)
        for place, tensor in zip(self.places, tensors, strict=True):
            arrays[place] = convert_leaf(tensor, "jax", self.keywords)
        return arrays

    def run(self, tensors: Arrays) -> tuple[Any, ...]:
        """The results as tensors, without gradients."""
        results, rest = self.program.run(self.filled(tensors))
        return self.finish(results, rest, [])

    def run_linearized(self, tensors: Arrays) -> tuple[Any, ...]:
        """The results, and then a tensor that is to be saved for what JAX needs of this call."""
        results, vjp, rest = self.program.run_linearized(self.filled(tensors))
        needed, self.vjp = jax.tree_util.tree_flatten(vjp)
        return *self.finish(results, rest, needed), ticket_for(needed)

    def finish(self, results: Arrays, rest: Rest, needed: Arrays) -> tuple[Any, ...]:
        self.form, self.keys = rest.form, rest.keys
        self.with_gradients, self.results = len(results), len(results) + len(rest.arrays)
        made = [*results, *rest.arrays]
        wait_for_host([*made, *needed])
        if not any(array.size for array in made):
            jax.block_until_ready(needed)  # type: ignore[no-untyped-call]  # no stream of torch's waits for JAX
        return own([as_tensor(array) for array in made], needed, self.program.compiles and not config.jax_disable_jit)

    def pull_back(self, needed: Arrays, cotangents: Arrays) -> list[Any]:
        """The gradients, by what the forward call left."""
        pulled_back = self.program.pull_back(self.vjp.unflatten(needed), [as_array(each) for each in cotangents])
        wait_for_host(pulled_back)
        return [as_tensor(array) for array in pulled_back]

    def differentiate(self, tensors: Arrays, cotangents: Arrays) -> list[Any]:
        """The gradients with gradients of their own."""
        arrays, results = len(self.arrays), len(cotangents)
        program = self.program.derivative(arrays, results)
        places = *self.places, *range(arrays, arrays + results)
        call = Call(program, [*self.arrays, *[None] * results], places, self.keywords)
        return list(apply(call, *tensors, *cotangents)[:call.results])


def as_array(tensor: Any) -> Any:
    return convert(tensor, "jax", detach=True, readonly="share")


def as_tensor(array: Any) -> Any:
    """A tensor over memory that JAX has no other use for."""
    return convert(array, "torch", readonly="share")


def ticket_for(needed: Arrays) -> Any:
    """A tensor for torch to save, and to release, in place of arrays of JAX that no other code sees."""
    ticket = torch.empty(0)
    ticket.arrays_of_jax = needed  # type: ignore[attr-defined]
    return ticket


def own(tensors: list[Any], needed: Arrays, compiled: bool) -> tuple[Any, ...]:
    """Tensors that share no memory, nor any that JAX needs.

    What is compiled gives new memory, other functions may give what they got.
    """
    seen = {array.unsafe_buffer_pointer() for array in needed
            if isinstance(array, jax.Array) and not is_key(array) and len(array.sharding.device_set) == 1}
    for index, tensor in enumerate(tensors):
        address = tensor.data_ptr()
        if not compiled or address in seen:
            tensors[index] = tensor.clone()
        seen.add(address)
    return tuple(tensors)


class FunctionOfJax(torch.autograd.Function):
    """What torch differentiates: the results of a Call, and behind them what is saved for the gradients."""

    @staticmethod
    def forward(call: Call, *tensors: Any) -> tuple[Any, ...]:
        return call.run_linearized(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *tensors = inputs
        ctx.call = call
        ctx.likes = [(result.shape, result.dtype, result.device) for result in output[:call.with_gradients]]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[call.with_gradients:])
        ctx.save_for_backward(*tensors, *output[call.results:])

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return FunctionOfJax.pulled_back(ctx, given)
        from dlbridge.trees.compiled import as_it_is
        return as_it_is(FunctionOfJax.pulled_back, ctx, given)      # where a compiled function calls backward()

    @staticmethod
    def pulled_back(ctx: Any, given: Any) -> Any:
        call, saved = ctx.call, ctx.saved_tensors
        tensors = saved[:len(call.places)]
        # None where a hook of torch's has saved something else.
        needed = getattr(saved[-1], "arrays_of_jax", None)
        cotangents = whole_cotangents(given, ctx.likes)
        with in_mode(call.x64):
            if needed is None or torch.is_grad_enabled() or is_transformed():
                found = call.differentiate(tensors, cotangents)
            else:
                found = call.pull_back(needed, cotangents)
        gradients = dict(zip(call.program.places, found, strict=False))
        return None, *(alike(gradients.get(place), tensor) for place, tensor in zip(call.places, tensors, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: Call, *tensors: Any) -> Any:
        axes: list[int | None] = [None] * len(call.arrays)
        for place, axis in zip(call.places, in_dims[1:], strict=True):
            axes[place] = axis
        program = call.program.batched(tuple(axes), info.batch_size)
        inner = Call(program, call.arrays, call.places, call.keywords)
        results = apply(inner, *tensors)[:inner.results]
        call.form, call.keys = inner.form, inner.keys
        call.results, call.with_gradients = inner.results, inner.with_gradients
        return results, (0,) * len(results)


apply: Any = FunctionOfJax.apply


def whole_cotangents(cotangents: Sequence[Any], likes: Iterable[tuple[Any, Any, Any]]) -> list[Any]:
    """Those of the results that have gradients, which come first; zeros where there is none.

    ``likes``: the shape, dtype and device of each.
    """
    if any(cotangent is not None and is_batched(cotangent) for cotangent in cotangents):
        raise refusal(UnsupportedError, "accepts", "is_grads_batched", True, "gives batches that have no memory",
                      "call torch.func.jacrev, or torch.autograd.grad for each row")
    return [torch.zeros(shape, dtype=dtype, device=device) if cotangent is None else cotangent
            for cotangent, (shape, dtype, device) in zip(cotangents, likes, strict=False)]


def alike(gradient: Any, tensor: Any) -> Any:
    """A gradient in the type and on the device of its tensor."""
    if gradient is None or (gradient.dtype == tensor.dtype and gradient.device == tensor.device):
        return gradient
    return gradient.to(device=tensor.device, dtype=tensor.dtype)


# ---- a function for tensors ------------------------------------------------------------------------------------------

# How a function is compiled: with its floats as arrays, or else as they are, for a function that needs to know them.
# One that chooses a branch by the values of arrays is not compiled.
FLOATS_TRACED, FLOATS_CONSTANT, NOT_COMPILED = range(3)
# What JAX, or a function that is not made for it, raises over values that are not known while it is traced. It is then
# run in the next way, so that a function which raises one of these for another reason runs up to three times.
UNKNOWN_VALUES = (TypeError, ValueError, IndexError, AttributeError, OverflowError, NotImplementedError)


class FunctionForTensors:
    """A function of JAX that is called with arguments among which are tensors."""

    def __init__(self, function: Callable[..., Any], keywords: dict[str, Any]) -> None:
        self.function = function
        self.keywords = {**keywords, "detach": True, "readonly": "share"}
        self.programs: dict[Any, Program] = {}      # by the form of the arguments, and which of them want a gradient
        self.operations: dict[Any, Any] = {}        # for what torch.compile compiles
        self.ways: dict[Any, int] = {}              # by the form and the shapes that FLOATS_TRACED does not serve

    def __call__(self, bound: tuple[Any, ...], arguments: list[Any], by_name: dict[str, Any]) -> Any:
        """``bound`` has the object that the function is a method of, which is handed on as it is."""
        form, arrays = take_out([arguments, by_name], is_array_or_float)
        if any(map(is_traced, arrays)):
            return self.run_in_jax(bound, *take_out([arguments, by_name], is_array))
        known = None if bound else key_of(form)
        key = known, tuple(array.shape for array in arrays if is_array(array))
        way = NOT_COMPILED if known is None else self.ways.get(key, FLOATS_TRACED)
        while True:
            if way != FLOATS_TRACED:
                form, arrays = take_out([arguments, by_name], is_array)
                known = key_of(form) if way == FLOATS_CONSTANT else None
            try:
                result = self.call(bound, form, known, arrays)
            except UNKNOWN_VALUES as error:
                if way == NOT_COMPILED or isinstance(error, DLBridgeError):
                    raise
                way = way + 1 if len(places_of(KINDS, arrays)) < len(arrays) else NOT_COMPILED
                continue
            if way != FLOATS_TRACED and key[0] is not None:
                keep(self.ways, key, way)
            return result

    def run_in_jax(self, bound: tuple[Any, ...], form: Any, arrays: list[Any]) -> Any:
        """JAX differentiates it, and tensors are constants, whose memory JAX may keep."""
        for place in places_of(torch.Tensor, arrays):
            check_constant(arrays[place])
            arrays[place] = convert_leaf(arrays[place], "jax", self.keywords_of_copies())
        arguments, by_name = put_in(form, arrays)
        return self.function(*bound, *arguments, **by_name)

    def call(self, bound: tuple[Any, ...], form: Any, known: Any, arrays: list[Any]) -> Any:
        """The result. ``known`` is the key of the form, with which it is compiled, or None."""
        transformed = is_transformed()
        places = places_of(torch.Tensor, arrays)
        wanted = tuple(place for place in places if wants_gradient(arrays[place], transformed))
        tensors = [arrays[place] for place in places]
        check_no_tangents(tensors)
        others = [None if place in places else array for place, array in enumerate(arrays)]
        keywords = self.keywords_of_copies() if known is None else self.keywords
        call = Call(self.program(bound, form, known, wanted), others, places, keywords)
        made = apply(call, *tensors) if wanted or transformed else call.run(tensors)
        results = made[:call.results]
        if "device" in keywords:
            results = [result.to(tensors[0].device) for result in results]
        return put_in_result(call.form, (*results, *call.keys), "torch")

    def keywords_of_copies(self) -> dict[str, Any]:
        """Those for arrays that JAX may keep, since it does not compile the function."""
        if self.keywords.get("copy") is False:
            raise refusal(CopyRequiredError, "accepts", "copy", False, "is for what JAX compiles: it may keep other "
                          "arrays, which nobody may write to then", "pass copy=None")
        return {**self.keywords, "copy": True}

    def program(self, bound: tuple[Any, ...], form: Any, known: Any, wanted: tuple[int, ...]) -> Program:
        key = known, wanted
        if key in self.programs:
            return self.programs[key]
        part = by_arrays(functools.partial(self.function, *bound), form)
        program = Program(part, wanted, compiles=known is not None)
        return keep(self.programs, key, program) if program.compiles else program


def check_no_tangents(tensors: Iterable[Any]) -> None:
    """Refuse forward mode, which would take what comes back for constants, and their derivatives for zeros."""
    dual: Any = torch.autograd.forward_ad.unpack_dual
    if any(dual(tensor).tangent is not None for tensor in tensors):
        raise refusal(UnsupportedError, "accepts", "gradients", True, "has no forward mode",
                      "call torch.func.jacrev or torch.func.vjp, or leave out strategy= of torch's jacobian()")


def wants_gradient(tensor: Any, transformed: bool) -> bool:
    """Whether a tensor may want one: under a transformation of torch it need not say so."""
    wanted = transformed or (tensor.requires_grad and torch.is_grad_enabled())
    return wanted and (tensor.is_floating_point() or tensor.is_complex())
