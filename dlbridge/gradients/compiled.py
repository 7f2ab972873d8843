"""Functions of JAX in what ``torch.compile`` compiles, as an operator of torch, which its compiler does not look into.

The compiler asks what an operator gives before there are values, which ``jax.eval_shape`` finds, and for an operator of
its gradients: it is the same one, of the program's derivative, so it has gradients of its own.
"""

import operator
import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from dlbridge.errors import ConversionError, refusal
from dlbridge.gradients.arrays import Arrays, convert_leaf, has_x64, in_mode
from dlbridge.gradients.forms import Slot, key_of, put_in, take_out
from dlbridge.gradients.of_jax import Call, Program, alike, by_arrays, check_no_tangents, whole_cotangents
from dlbridge.gradients.private import is_transformed
from dlbridge.trees.compiled import TENSORS, VALUES
from dlbridge.trees.failure import Failure

# ---- what torch runs -------------------------------------------------------------------------------------------------


class Operation:
    """A program for tensors of some shapes and dtypes. The first of them are numbers of Python."""

    def __init__(
        self, program: Program, keywords: dict[str, Any], numbers: int, given: Arrays, is_derivative: bool = False,
    ) -> None:
        """``given``: for each tensor a ``jax.ShapeDtypeStruct``, or a number."""
        self.is_derivative = is_derivative
        self.program, self.keywords, self.numbers, self.given = program, keywords, numbers, given
        self.x64 = has_x64()
        results, rest = jax.eval_shape(program.part, given)
        self.with_gradients = len(results)
        self.results = [(result.shape, getattr(torch, result.dtype.name)) for result in (*results, *rest.arrays)]
        self.form, self.keys = rest.form, rest.keys
        self.derivatives: dict[tuple[int, ...], int] = {}

    def run(self, tensors: Arrays) -> list[Any]:
        check_no_tangents(tensors)
        if not self.is_derivative and has_x64() != self.x64:        # a derivative may run in another thread
            raise refusal(ConversionError, "accepts", "jax_enable_x64", not self.x64,
                          f"was {self.x64} when torch compiled this call", "compile it again, by torch._dynamo.reset()")
        arrays = [*[tensor.item() for tensor in tensors[:self.numbers]], *[None] * (len(tensors) - self.numbers)]
        call = Call(self.program, arrays, tuple(range(self.numbers, len(tensors))), self.keywords)
        with in_mode(self.x64):
            results = call.run(tensors[self.numbers:])
        return [result.to(self.device(tensors)) for result in results]

    def device(self, tensors: Arrays) -> Any:
        """Where the results are: with the first tensor."""
        return tensors[self.numbers].device

    def derivative(self, wanted: tuple[int, ...]) -> int:
        """The operation, by its number, of the gradients for some of the tensors, after which come cotangents."""
        if wanted not in self.derivatives:
            program = Program(self.program.part, wanted, compiles=True)
            cotangents = [struct(shape, dtype_in_jax(dtype)) for shape, dtype in self.results[:self.with_gradients]]
            with in_mode(self.x64):
                derivative = program.derivative(len(self.given), self.with_gradients)
                given = [*self.given, *cotangents]
                made = Operation(derivative, self.keywords, self.numbers, given, is_derivative=True)
            self.derivatives[wanted] = registered(made)
        return self.derivatives[wanted]


def struct(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call, unused-ignore]


def dtype_in_jax(dtype: torch.dtype) -> Any:
    return jnp.dtype(str(dtype).removeprefix("torch."))


# By the number that torch's graph has of each, for as long as the process runs.
OPERATIONS: dict[int, Operation] = {}


def registered(operation: Operation) -> int:
    """The new number of an operation."""
    number = secrets.randbits(62)       # torch keeps graphs on disk for other processes, where it must be another one
    OPERATIONS[number] = operation
    return number


def find(number: int) -> Operation:
    if number not in OPERATIONS:
        raise refusal(ConversionError, "accepts", "operation", number, "is a function of JAX in another process",
                      "trace or compile the function in this one")
    return OPERATIONS[number]


@torch.library.custom_op("dlbridge::of_jax", mutates_args=(), schema="(int number, Tensor[] tensors) -> Tensor[]")
def of_jax(number: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    try:
        return find(number).run(tensors)
    except Failure as failure:
        raise failure.error from None


@of_jax.register_fake
def fake_results(number: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    operation = find(number)
    device = operation.device(tensors)
    return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in operation.results]


def save_inputs(ctx: Any, inputs: Any, output: Any) -> None:
    number, tensors = inputs
    ctx.operation = find(number)
    ctx.save_for_backward(*tensors)


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def gradients(ctx: Any, cotangents: Any) -> Any:
    operation, tensors = ctx.operation, ctx.saved_tensors
    device = operation.device(tensors)
    whole = whole_cotangents(cotangents, [(*each, device) for each in operation.results[:operation.with_gradients]])
    wanted = tuple(place for place, needed in enumerate(ctx.needs_input_grad[1]) if needed)
    found = dict(zip(wanted, of_jax(operation.derivative(wanted), [*tensors, *whole]), strict=True))
    return None, [alike(found.get(place), tensor) for place, tensor in enumerate(tensors)]


of_jax.register_autograd(gradients, setup_context=save_inputs)


# ---- what torch's compiler follows -----------------------------------------------------------------------------------

def call_as_operator(crossing: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any] | None:
    """The result of a function, alone in a tuple; None if it cannot be foreseen."""
    numbers: list[Any] = []
    tensors: list[Any] = []
    form = taken_out([positional, named], numbers, tensors)
    if form is None or not tensors or True in [tensor.is_meta for tensor in tensors]:
        return None
    facts = tuple([(tuple([operator.index(size) for size in tensor.shape]), tensor.dtype) for tensor in tensors])
    operation = foresee(crossing, form[0], facts)
    if operation is None:
        return None
    number, result = operation
    one = torch.ones((), dtype=torch.float64, device="cpu")     # what is multiplied is no constant of the graph
    made = torch.ops.dlbridge.of_jax(number, [*[one * each for each in numbers], *tensors])
    return with_tensors(result, made),


def taken_out(value: Any, numbers: list[Any], tensors: list[Any]) -> Any:
    """A value, alone in a tuple, with ``float`` and ``Slot`` in place of numbers and tensors; None if it has others."""
    kind = type(value)
    if kind in TENSORS:
        tensors.append(value)
        return Slot,
    if kind is float:
        numbers.append(value)
        return float,
    if kind is int:
        return operator.index(value),               # which is a constant of the graph
    if kind in VALUES:
        return value,
    if kind not in (list, tuple, dict):
        return None
    parts = [taken_out(part, numbers, tensors) for part in (value.values() if kind is dict else value)]
    if None in parts:
        return None
    values = [part[0] for part in parts]
    return (dict(zip(value, values, strict=True)) if kind is dict else kind(values)),


def with_tensors(described: Any, tensors: list[Any]) -> Any:
    """What was described, with these tensors in it."""
    kind, part, *parts = described
    if kind == "tensor":
        return tensors[part]
    if kind == "value":
        return part
    values = [with_tensors(each, tensors) for each in parts]
    return dict(zip(part, values, strict=True)) if kind == "dict" else values if kind == "list" else tuple(values)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator, unused-ignore]
def foresee(crossing: Any, form: Any, facts: Any) -> Any:
    """The number of an operation, and its result in constants; None where it has none.

    ``facts``: the shape and dtype of each tensor. torch's compiler runs it as it is.
    """
    known = key_of(form)
    if known is None or is_transformed():       # torch.func asks more of operators than torch's compiler
        return None
    function = crossing.function
    key = known, facts, has_x64()
    found = function.operations.get(key) or make_operation(function, form, facts)
    if found is not None:
        function.operations[key] = found
    return found


def make_operation(function: Any, form: Any, facts: Any) -> Any:
    form, marks = take_out(form, lambda leaf: leaf is Slot or leaf is float)
    numbers = marks.count(float)
    places = {float: iter(range(numbers)), Slot: iter(range(numbers, len(marks)))}
    form = put_in(form, [Slot(next(places[mark])) for mark in marks])
    try:
        given = [struct(shape, convert_leaf(np.empty(0, dtype_in_jax(dtype)), "jax", function.keywords).dtype)
                 for shape, dtype in facts]
        program = Program(by_arrays(function.function, form), (), compiles=True)
        operation = Operation(program, function.keywords, numbers, [1.0] * numbers + given)
    except Exception:       # the call that is made without a compiler says what is wrong
        return None
    described = described_in_constants(operation.form)
    return None if described is None or operation.keys else (registered(operation), described)


def described_in_constants(form: Any) -> Any:
    """The form of a result in tuples, texts and numbers, which are all that torch's compiler takes from foresee()."""
    kind = type(form)
    if kind is Slot:
        return "tensor", int(form)
    if kind in VALUES:
        return "value", form
    if kind not in (list, tuple, dict) or (kind is dict and not {*map(type, form)} <= {*VALUES}):
        return None
    parts = [described_in_constants(part) for part in (form.values() if kind is dict else form)]
    return None if None in parts else (kind.__name__, tuple(form) if kind is dict else None, *parts)
