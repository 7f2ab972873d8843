"""Functions of torch for arrays of JAX: their results, with the gradients that torch finds.

Where the arrays are there, torch runs at once, and jax.grad keeps torch's own graph. Under jax.jit, vmap and scan they
are not: torch runs in a callback, which gives the results alone, and once more for the gradients. Then random numbers
are drawn from the state that the first run began with.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from dlbridge.convert import convert
from dlbridge.errors import UnsupportedError, refusal, shown
from dlbridge.gradients.arrays import (
    Arrays,
    check_constant,
    check_no_key,
    config,
    convert_leaf,
    has_x64,
    in_mode,
    is_array,
    is_inexact,
    is_traced,
    places_of,
)
from dlbridge.gradients.forms import keep, key_of, put_in, put_in_result, take_out
from dlbridge.gradients.private import Unforeseeable, run_without_values
from dlbridge.gradients.state import put_back

OUTSIDE_OF_TRACES = "call it outside of jax.jit, jax.vmap and jax.lax.scan; jax.grad may be around it"
Part = Callable[[Arrays], tuple[Any, Arrays]]       # of tensors: the form of the results, and the tensors in it


Shape: Any = jax.ShapeDtypeStruct


class Foreseen(NamedTuple):
    """What a function will give for arrays of some shapes and dtypes."""

    form: Any
    results: tuple[Any, ...]        # jax.ShapeDtypeStruct
    draws: bool                     # whether it draws random numbers


class Ways(NamedTuple):
    """How arrays come to torch and back, and what JAX does with a batch of them."""

    inward: dict[str, Any]          # keywords of convert
    outward: dict[str, Any]
    vmap_method: str

    def tensors(self, arrays: Arrays) -> list[Any]:
        """Copies, unless the keywords say otherwise: torch may write its tensors, and JAX's arrays must not change."""
        return [convert_leaf(array, "torch", self.inward) for array in arrays]

    def arrays(self, tensors: Arrays, like: Any = "jax") -> tuple[Any, ...]:
        return tuple(convert(tensor, like, detach=True, **self.outward) for tensor in tensors)

    def shared(self) -> "Ways":
        return self._replace(inward={**self.inward, "readonly": "share"}, outward={**self.outward, "readonly": "share"})


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """What torch keeps of a function that ran for its gradients; without inputs it is to run once more."""

    wanted: tuple[int, ...]                 # the places of the arrays that are differentiated
    inputs: Arrays = ()
    outputs: Arrays = ()


@dataclasses.dataclass(frozen=True)
class Callback:
    """What JAX calls when it has values. Equal ones are compiled once."""

    program: "Program"
    shares: bool            # since JAX gives copies of its arrays, and copies the results
    draws: bool
    x64: bool
    axes: int               # of the first array; it may come with more, of batches

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        ways = self.program.ways.shared() if self.shares else self.program.ways
        with in_mode(self.x64), torch.no_grad():
            batch = arrays[0].shape[:arrays[0].ndim - self.axes]
            state = [torch.get_rng_state().expand(*batch, -1)] if self.draws else []
            _, results = self.program.part(ways.tensors(arrays))
            return ways.arrays([*results, *state])


class Program:
    """A function of a list of tensors alone, called with arrays of JAX."""

    def __init__(self, part: Part, ways: Ways) -> None:
        self.part = part
        self.ways = ways
        self.made: dict[Any, Derivative] = {}               # from this one

    def foresee(self, arrays: Arrays) -> Foreseen:
        """What it will give now: a module may be in another mode than the last time."""
        examples = self.ways.tensors([np.zeros(0, array.dtype) for array in arrays])

        def run() -> Any:
            return self.part([
                torch.empty(array.shape, dtype=example.dtype, device=example.device)
                for array, example in zip(arrays, examples, strict=True)])

        with put_back(self.part):
            (form, results), draws = run_without_values(run)
        dtypes = [each.dtype for each in self.ways.arrays([torch.empty(0, dtype=result.dtype) for result in results])]
        shapes = [tuple(result.shape) for result in results]
        return Foreseen(form, tuple(map(Shape, shapes, dtypes)), draws)

    def derivative(self, arrays: int, wanted: tuple[int, ...], places: tuple[int, ...], draws: bool) -> "Derivative":
        key = wanted, places, draws
        return self.made.get(key) or self.made.setdefault(key, Derivative(self, arrays, *key))

    def call(self, arrays: Arrays, note: Callable[[Any], Any], draws: bool = False) -> tuple[Any, ...]:
        """The results, with gradients; if it draws random numbers, then the state before. Their form is noted."""
        bridge = jax.custom_vjp(functools.partial(self.run, note, draws))
        bridge.defvjp(functools.partial(self.run_forward, note, draws), self.run_backward, symbolic_zeros=True)
        results: tuple[Any, ...] = bridge(*arrays)
        return results

    def run(self, note: Callable[[Any], Any], draws: bool, *arrays: Any) -> tuple[Any, ...]:
        """The results, without gradients."""
        if not any(map(is_traced, arrays)):
            state = [torch.get_rng_state()] if draws else []
            with torch.no_grad():
                form, results = self.part(self.ways.tensors(arrays))
            note(form)
            return self.ways.arrays([*results, *state], arrays[0])
        foreseen = self.foresee(arrays)
        note(foreseen.form)
        state_shape = [Shape(torch.get_rng_state().shape, jnp.uint8)] if draws else []
        method = self.ways.vmap_method
        compiles = method == "sequential" and not config.jax_disable_jit
        callback = Callback(self, compiles, draws, has_x64(), arrays[0].ndim)
        if draws and method != "sequential":
            method = "broadcast_all"        # the first array says how many states the batch has
        return tuple(jax.pure_callback(callback, (*foreseen.results, *state_shape), *arrays, vmap_method=method))

    def run_forward(self, note: Callable[[Any], Any], draws: bool, *primals: Any) -> Any:
        """The results, and what is kept for the gradients."""
        arrays = [primal.value for primal in primals]
        wanted = tuple(place for place, primal in enumerate(primals) if primal.perturbed and is_inexact(primal.value))
        if any(map(is_traced, arrays)):
            again = self.foresee(arrays).draws
            results = self.call(arrays, note, again)
            state = results[-1:] if again else ()
            return results if draws else results[:len(results) - again], (arrays, state, Graph(wanted))
        state = self.ways.arrays([torch.get_rng_state()])
        with recording():
            tensors = self.ways.tensors(arrays)
            inputs = [tensors[place].requires_grad_() for place in wanted]
            form, outputs = self.part(tensors)
        note(form)
        results = *self.ways.arrays(outputs, arrays[0]), *(state if draws else ())
        return results, (arrays, state, Graph(wanted, inputs, outputs))

    def run_backward(self, kept: Any, given: Arrays) -> tuple[Any, ...]:
        """A gradient for each of the arrays that are differentiated, and None for the others."""
        arrays, state, graph = kept
        places = tuple(place for place, cotangent in enumerate(given) if is_inexact(cotangent))
        cotangents = [zeros_for(given[place]) for place in places]
        if not graph.inputs or any(map(is_traced, cotangents)):
            derivative = self.derivative(len(arrays), graph.wanted, places, bool(state))
            gradients = derivative.call([*arrays, *state, *cotangents], lambda form: None)
        else:
            outputs = [graph.outputs[place] for place in places]
            with torch.inference_mode(False):
                cotangents = self.ways.tensors(cotangents)
                found = gradients_with_graph(outputs, graph.inputs, cotangents, retain_graph=True)
            gradients = self.ways.arrays(found, arrays[0])
        by_place = dict(zip(graph.wanted, gradients, strict=True))
        return tuple(by_place.get(place) for place in range(len(arrays)))


def zeros_for(cotangent: Any) -> Any:
    symbolic = isinstance(cotangent, jax.custom_derivatives.SymbolicZero)
    return jnp.zeros(cotangent.shape, cotangent.dtype) if symbolic else cotangent


class Derivative(Program):
    """The gradients of a Program: of its arrays, then the state of random numbers if it draws any, then cotangents."""

    def __init__(
        self, of: Program, arrays: int, wanted: tuple[int, ...], places: tuple[int, ...], draws: bool,
    ) -> None:
        # A batch is of functions here, each with gradients of its own.
        method = of.ways.vmap_method if of.ways.vmap_method == "sequential" else "broadcast_all"
        super().__init__(self.gradients, of.ways._replace(vmap_method=method))
        self.of = of
        self.count = arrays
        self.wanted = wanted
        self.places = places            # of the results that have cotangents
        self.draws = draws

    def gradients(self, tensors: Arrays) -> tuple[Any, Arrays]:
        again = torch.is_grad_enabled()         # for the gradients of these
        with recording():
            tensors = [tensor.clone() if tensor.is_inference() else tensor for tensor in tensors]
        given, cotangents = list(tensors[:self.count]), tensors[self.count + self.draws:]
        with recording(), drawing(tensors[self.count] if self.draws else None):
            for place in self.wanted:
                if not given[place].requires_grad:
                    given[place] = given[place].detach().requires_grad_()
            _, results = self.of.part(given)
            inputs = [given[place] for place in self.wanted]
            wanted = [results[place] for place in self.places]
            with torch.set_grad_enabled(again):
                return None, gradients_with_graph(wanted, inputs, cotangents, create_graph=again)

    def foresee(self, arrays: Arrays) -> Foreseen:
        wanted = [arrays[place] for place in self.wanted]
        return Foreseen(None, tuple(Shape(array.shape, array.dtype) for array in wanted), False)


def gradients_with_graph(results: Arrays, inputs: Arrays, cotangents: Arrays, **keywords: Any) -> Arrays:
    """The gradients, by JAX's convention for complex numbers, which is the conjugate of torch's."""
    pairs = [(result, cotangent.conj()) for result, cotangent in zip(results, cotangents, strict=True)
             if result.requires_grad]
    if not pairs:
        return [torch.zeros_like(tensor) for tensor in inputs]
    outputs, conjugates = zip(*pairs, strict=True)
    found = torch.autograd.grad(outputs, inputs, conjugates, allow_unused=True, materialize_grads=True, **keywords)
    return [gradient.conj() for gradient in found]


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Let torch record what is computed, also where its inference mode is on."""
    with torch.inference_mode(False), torch.enable_grad():
        if not torch.ones((), requires_grad=True).clone().requires_grad:
            raise refusal(UnsupportedError, "accepts", "gradients", True, "are not recorded in operators of torch",
                          "call it outside of a function of torch.library.custom_op")
        yield


@contextlib.contextmanager
def drawing(state: Any) -> Iterator[None]:
    """Draw random numbers from a state for a while. In a batch, every row has the same."""
    if state is None:
        yield
        return
    before = torch.get_rng_state()
    torch.set_rng_state(state.reshape(-1, state.shape[-1])[0])
    try:
        yield
    finally:
        torch.set_rng_state(before)


# ---- a function for arrays -------------------------------------------------------------------------------------------

class FunctionForArrays:
    """A function of torch that is called with arguments among which are arrays of JAX."""

    def __init__(self, function: Callable[..., Any], keywords: dict[str, Any]) -> None:
        self.function = function
        forward = {name: value for name, value in keywords.items() if name != "vmap_method"}
        back = {name: value for name, value in forward.items() if name == "narrow"}
        self.ways = Ways(forward, back, keywords.get("vmap_method", "sequential"))
        self.programs: dict[Any, Program] = {}      # by the form of the arguments

    def __call__(self, bound: tuple[Any, ...], arguments: list[Any], by_name: dict[str, Any]) -> Any:
        """``bound`` has the object that the function is a method of, which is handed on as it is."""
        form, leaves = take_out([arguments, by_name], is_array)
        places = places_of(jax.Array, leaves)
        arrays = [leaves[place] for place in places]
        for array in arrays:
            check_no_key(array)
        traced = any(map(is_traced, arrays))
        if traced and torch.compiler.is_compiling():        # for an operator, in which torch records nothing
            raise refusal(UnsupportedError, "accepts", "gradients", True, "are not recorded in operators of torch",
                          "call it outside of torch.compile")
        if not traced and isinstance(leaves[0], torch.Tensor):
            return self.run_in_torch(bound, form, leaves)
        for place in places_of(torch.Tensor, leaves):
            check_constant(leaves[place])
        program = self.program(bound, form, leaves, places)
        forms: list[Any] = []
        try:
            results = program.call(arrays, forms.append) if traced else program.run(forms.append, False, *arrays)
        except Unforeseeable as error:
            name = getattr(self.function, "__name__", shown(self.function))
            raise refusal(UnsupportedError, "accepts", "function", name, f"{error}; JAX has none while it traces",
                          OUTSIDE_OF_TRACES) from error
        return put_in_result(forms[-1], results, "jax")

    def run_in_torch(self, bound: tuple[Any, ...], form: Any, leaves: list[Any]) -> Any:
        """The first array is a tensor, so torch differentiates it, and arrays of JAX are constants."""
        for place in places_of(jax.Array, leaves):
            leaves[place] = convert_leaf(leaves[place], "torch", self.ways.inward)
        arguments, by_name = put_in(form, leaves)
        return self.function(*bound, *arguments, **by_name)

    def program(self, bound: tuple[Any, ...], form: Any, leaves: Arrays, places: tuple[int, ...]) -> Program:
        key = key_of(form) if not bound and len(places) == len(leaves) else None       # others are constants
        if key in self.programs:
            return self.programs[key]
        function = functools.partial(self.function, *bound)
        program = Program(by_tensors(function, form, leaves, places), self.ways)
        return program if key is None else keep(self.programs, key, program)


def by_tensors(function: Callable[..., Any], form: Any, leaves: Arrays, places: tuple[int, ...]) -> Part:
    """A function of the tensors at some places of its leaves, in place of one of positional and keyword arguments."""
    constants = [None if place in places else leaf for place, leaf in enumerate(leaves)]

    def part(tensors: Arrays) -> tuple[Any, Arrays]:
        given = list(constants)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        arguments, by_name = put_in(form, given)
        return take_out(function(*arguments, **by_name), is_array)

    return part
