"""accepts("jax", gradients=True): torch differentiates functions of JAX."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.differentiable import FUNCTIONS, assert_close, cotangent, in_turn

import dlbridge
from dlbridge.gradients.forms import KEPT

pytestmark = pytest.mark.needs("torch", "jax")

DTYPES = ("float32", "float64", "bfloat16", "complex64", "complex128")


def carried(function, **keywords):
    return dlbridge.accepts("jax", returns="like", gradients=True, **keywords)(function)


def inputs_of(function, dtype):
    return [torch.tensor(array, dtype=getattr(torch, dtype), requires_grad=True) for array in function.inputs(dtype)]


def x64(dtype):
    return jax.enable_x64(dtype in ("float64", "complex128"))


def counted(function):
    """The function, and a list that is longer by one after each run of its Python code."""
    runs = []

    def run(*given, **named):
        runs.append(1)
        return function(*given, **named)

    return run, runs


# ---- values ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "dtype"), in_turn(DTYPES[:4]))
def test_results_and_gradients_are_those_of_torch(name, dtype):
    function = FUNCTIONS[name]
    inputs = inputs_of(function, dtype)
    expected = function.torch(*inputs)
    given = torch.tensor(cotangent(expected), dtype=expected.dtype)
    with x64(dtype):
        result = carried(function.jax)(*inputs)
        found = torch.autograd.grad(result, inputs, given)
    assert_close(result, expected)
    for gradient, own in zip(found, torch.autograd.grad(expected, inputs, given), strict=True):
        assert_close(gradient, own)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_finite_differences(name):
    function = FUNCTIONS[name]
    dtype = "float64" if function.real else "complex128"
    with x64(dtype):
        assert torch.autograd.gradcheck(carried(function.jax), inputs_of(function, dtype), fast_mode=True)


@pytest.mark.parametrize("name", ["sin", "network", "conjugate", "recurrence", "convolution", "attention"])
def test_gradients_of_gradients_against_finite_differences(name):
    function = FUNCTIONS[name]
    dtype = "float64" if function.real else "complex128"
    with x64(dtype):
        assert torch.autograd.gradgradcheck(carried(function.jax), inputs_of(function, dtype), fast_mode=True)


# ---- what is differentiated ------------------------------------------------------------------------------------------

@carried
def layer(parameters, x, *, scale=1.0, mode="plain"):
    result = jnp.tanh(x @ parameters["weight"]) * scale
    return {"result": result, "best": jnp.argmax(result), "loss": (result.sum(), None), "mode": mode}


def test_containers_keywords_and_results_of_other_kinds():
    weight = torch.arange(-3.0, 3).div(4).reshape(3, 2).requires_grad_()
    x = torch.arange(12.0).div(8).reshape(4, 3)
    given = layer({"weight": weight, "steps": torch.zeros(2, dtype=torch.int32)}, x=x, scale=2.0, mode="other")
    assert (given["mode"], given["best"].dtype, given["best"].requires_grad) == ("other", torch.int32, False)
    given["loss"][0].backward()
    (torch.tanh(x @ (own := weight.detach().requires_grad_())) * 2).sum().backward()
    assert torch.allclose(weight.grad, own.grad, atol=1e-6)
    assert x.grad is None


@dataclass
class State:
    position: object
    name: str = "a"


def test_a_dataclass_comes_and_goes():
    x = torch.ones(2, requires_grad=True)
    result = carried(lambda state: State(state.position * 3, state.name + "b"))(State(x))
    assert (type(result), result.name) == (State, "ab")
    result.position.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_result_that_does_not_depend_on_an_input_gives_zeros():
    x, y = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    carried(lambda x, y: x * 2)(x, y).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2, 2], [0, 0, 0])


def test_a_result_that_nobody_uses():
    x = torch.ones(2, requires_grad=True)
    first, _ = carried(lambda x: (x * 2, x * 5))(x)
    first.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_the_same_tensor_twice():
    x = torch.tensor([3.0], requires_grad=True)
    carried(lambda x, y: x * y)(x, x).backward()
    assert x.grad.tolist() == [6]


def test_without_gradients():
    x = torch.ones(2, requires_grad=True)
    double = carried(lambda x: x * 2)
    with torch.no_grad():
        assert not double(x).requires_grad
    with torch.inference_mode():
        assert double(torch.ones(2)).tolist() == [2, 2]
    assert not double(x.detach()).requires_grad


def test_keys_of_jax_random_come_and_go():
    x = torch.zeros(5, requires_grad=True)
    result, key = carried(lambda x, key: (x * jax.random.normal(key, x.shape), jax.random.split(key, 1)[0]))(
        x, jax.random.key(3))
    result.sum().backward()
    assert np.array_equal(x.grad.numpy(), jax.random.normal(jax.random.key(3), (5,)))
    assert jnp.array_equal(jax.random.key_data(key), jax.random.key_data(jax.random.split(jax.random.key(3), 1)[0]))


def test_arrays_of_jax_and_numpy_are_constants():
    x = torch.ones(3, requires_grad=True)
    carried(lambda x, y, z: x * y + z)(x, jnp.arange(3.0), np.ones(3, "float32")).sum().backward()
    assert x.grad.tolist() == [0, 1, 2]


def test_arrays_of_numpy_in_a_result_become_tensors():
    table = np.arange(3.0)
    _, given = carried(lambda x: (x * 2, table))(torch.ones(2))
    assert (type(given), given.dtype) == (torch.Tensor, torch.float64)
    given.zero_()
    assert table.tolist() == [0, 1, 2]


def test_a_result_that_has_no_gradient():
    result = carried(jnp.argmax)(torch.tensor([1.0, 3.0], requires_grad=True))
    assert (result.item(), result.requires_grad) == (1, False)


def test_called_from_other_libraries_it_is_a_plain_function():
    double = carried(lambda x: x * 2)
    assert type(double(np.ones(2, "float32"))) is np.ndarray
    assert jax.grad(lambda x: double(x).sum())(jnp.ones(2)).tolist() == [2, 2]


def test_called_from_jax_with_tensors_they_are_constants():
    product = carried(lambda x, y: (x * y).sum())
    y = torch.tensor([2.0, 3.0])
    assert jax.jit(jax.grad(lambda x: product(x, y)))(jnp.ones(2)).tolist() == [2, 3]
    _, pull_back = jax.vjp(lambda x: product(x, y), jnp.ones(2))
    y.add_(1)
    assert pull_back(jnp.float32(1))[0].tolist() == [2, 3]
    with pytest.raises(dlbridge.ConversionError, match=r"\(y\): accepts: requires_grad True: would be lost"):
        jax.grad(lambda x: product(x, y.requires_grad_()))(jnp.ones(2))


@dataclass
class Counting:
    """A container, but its methods get the object itself."""

    weight: object
    calls: int = 0

    @dlbridge.accepts("jax", returns="like", gradients=True)
    def product(self, x):
        self.calls += 1
        return jnp.sum(x * self.weight)


def test_a_method_gets_self():
    model, x = Counting(2.0), torch.ones(2, requires_grad=True)
    model.product(x).backward()
    assert (model.calls, x.grad.tolist()) == (1, [2, 2])


def test_a_method_keeps_self():
    class Model:
        weight = 3.0

        @dlbridge.accepts("jax", returns="like", gradients=True)
        def loss(self, x):
            return jnp.sum(x * self.weight)

    model, x = Model(), torch.ones(2, requires_grad=True)
    model.loss(x).backward()
    model.weight = 5.0
    model.loss(x).backward()
    assert x.grad.tolist() == [8, 8]


# ---- torch's own ways ------------------------------------------------------------------------------------------------

def cubes_of_jax(x):
    return (x ** 3).sum()


def cubes_of_torch(x):
    return (x ** 3).sum()


def hessian(function, x):
    gradient, = torch.autograd.grad(function(x), x, create_graph=True)
    return torch.stack([torch.autograd.grad(each, x, retain_graph=True)[0] for each in gradient])


@pytest.mark.parametrize("way", [
    lambda f, x: torch.func.grad(f)(x),
    lambda f, x: torch.vmap(f)(torch.stack([x, 2 * x])),
    lambda f, x: torch.vmap(f, in_dims=1)(torch.stack([x, 2 * x], 1)),
    lambda f, x: torch.vmap(torch.func.grad(f))(torch.stack([x, 2 * x])),
    lambda f, x: torch.func.grad(lambda batch: torch.vmap(f)(batch).sum())(torch.stack([x, 2 * x])),
    lambda f, x: torch.func.grad(lambda x: torch.func.grad(f)(x).sum())(x),
    lambda f, x: torch.func.jacrev(lambda x: f(x) * x)(x),
    lambda f, x: torch.func.vjp(f, x)[1](torch.tensor(2.0))[0],
    lambda f, x: torch.func.functional_call(torch.nn.Identity(), {}, (f(x),)),
    lambda f, x: hessian(f, x.requires_grad_()),
    lambda f, x: torch.utils.checkpoint.checkpoint(f, x.requires_grad_(), use_reentrant=False),
], ids=["grad", "vmap", "vmap of axis 1", "vmap of grad", "grad of vmap", "grad of grad", "jacrev", "vjp",
        "functional_call", "hessian", "checkpoint"])
def test_transformations(way):
    x = torch.tensor([1.0, 2.0, 4.0])
    assert torch.allclose(way(carried(cubes_of_jax), x), way(cubes_of_torch, x))


@pytest.mark.filterwarnings("ignore")       # torch warns of what it cannot compile, and of its own old functions
def test_in_a_function_that_torch_compiles():
    sine = carried(lambda x: jnp.sin(x) * 2)
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: (sine(x * 2) + 1).sum(), backend="aot_eager")(x).backward()
    assert torch.allclose(x.grad, 4 * torch.full((3,), 2.0).cos())


# torch imports what forward mode needs.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is (deprecated|not supported)")
@pytest.mark.parametrize("way", [
    lambda f, x: in_dual_level(f, x),
    lambda f, x: in_dual_level(f, x.requires_grad_()),
    lambda f, x: torch.no_grad()(in_dual_level)(f, x),
    lambda f, x: torch.autograd.functional.jacobian(f, x, strategy="forward-mode", vectorize=True),
    lambda f, x: torch.func.jvp(f, (x,), (x,)),
    lambda f, x: torch.func.jacfwd(f)(x),
], ids=["dual", "dual with gradient", "dual without gradients", "jacobian", "jvp", "jacfwd"])
def test_forward_mode_is_refused(way):
    """It would take what comes back for constants, and their derivatives for zeros."""
    cubes = carried(lambda x: x ** 3)
    with pytest.raises(dlbridge.UnsupportedError, match=r"no forward mode \(call torch\.func\.jacrev"):
        way(cubes, torch.ones(2))
    # What the hint says.
    assert torch.func.jacrev(cubes)(torch.ones(2)).diagonal().tolist() == [3, 3]
    assert torch.func.vjp(cubes, torch.ones(2))[1](torch.ones(2))[0].tolist() == [3, 3]
    assert torch.autograd.functional.jacobian(cubes, torch.ones(2)).diagonal().tolist() == [3, 3]


def in_dual_level(function, x):
    with torch.autograd.forward_ad.dual_level():
        return function(torch.autograd.forward_ad.make_dual(x, torch.ones(2)))


def test_a_batch_of_cotangents_is_refused():
    x = torch.ones(2, requires_grad=True)
    cube = carried(lambda x: x ** 3)
    with pytest.raises(dlbridge.UnsupportedError, match=r"is_grads_batched True: .*call torch\.func\.jacrev"):
        torch.autograd.grad(cube(x), x, torch.eye(2), is_grads_batched=True)
    assert torch.func.jacrev(cube)(x.detach()).diagonal().tolist() == [3, 3]        # what the hint says


def test_an_input_that_is_written_before_the_gradient_is_noticed():
    x = torch.ones(3, requires_grad=True)
    result = carried(jnp.sin)(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_result_may_be_written():
    x = torch.ones(3, requires_grad=True)
    result = carried(jnp.exp)(x)
    result.mul_(2)
    result.sum().backward()
    assert torch.allclose(x.grad, 2 * torch.ones(3).exp())


def test_hooks_of_saved_tensors_see_what_is_saved():
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: seen.append(tensor) or tensor.clone(), lambda x: x):
        carried(jnp.sin)(x := torch.ones(3, requires_grad=True)).sum().backward()
    assert seen
    assert torch.allclose(x.grad, torch.ones(3).cos())


def test_python_waits_for_arrays_of_the_host_alone(monkeypatch):
    """On a device the order of streams is enough."""
    from dlbridge.gradients import arrays

    waited = []
    monkeypatch.setattr(arrays.jax, "block_until_ready", waited.extend)
    here, there = jnp.zeros(2), jnp.ones(2)
    monkeypatch.setattr(arrays, "is_on_device", lambda array: array is there)
    arrays.wait_for_host([here, there, 1.5])
    assert len(waited) == 2
    assert waited[0] is here


def test_what_is_kept_for_the_gradient_goes_with_torchs_graph():
    """It is no tensor that the user sees, and torch says when."""
    x = torch.ones(3, requires_grad=True)
    result = carried(jnp.sin)(x)
    ticket = result.grad_fn.saved_tensors[-1]
    kept = [weakref.ref(each) for each in ticket.arrays_of_jax if isinstance(each, jax.Array)]
    del ticket
    assert kept
    assert all(reference() is not None for reference in kept)
    result.sum().backward()
    gc.collect()
    assert all(reference() is None for reference in kept)


# ---- dtypes ----------------------------------------------------------------------------------------------------------

def test_float64_without_x64_follows_narrow():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(dlbridge.ConversionError, match=r"^sin\(x\): jax: dtype float64.*=True to dlbridge\.accepts"):
        carried(jnp.sin)(x)
    result = carried(jnp.sin, narrow=True)(x)
    result.sum().backward()
    assert (result.dtype, x.grad.dtype) == (torch.float32, torch.float64)


def test_the_gradient_is_in_the_type_of_its_argument():
    x = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    carried(lambda x: x.astype("float32") * 3)(x).sum().backward()
    assert x.grad.dtype == torch.bfloat16


def test_the_mode_of_the_forward_call_holds_in_the_backward_call():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with jax.enable_x64(True):
        result = carried(jnp.sin)(x)
    gradient, = torch.autograd.grad(result.sum(), x, create_graph=True)
    gradient.sum().backward()
    assert (gradient.dtype, x.grad.dtype) == (torch.float64, torch.float64)
    assert torch.allclose(x.grad, -x.sin())


# ---- how it is compiled ----------------------------------------------------------------------------------------------

def test_it_is_compiled_once_for_shapes_and_dtypes():
    function, runs = counted(lambda x, scale: (x * scale).sum())
    call = carried(function)
    for scale in (1.0, 2.0, 3.0):           # a float is an array in what is compiled
        x = torch.ones(3, requires_grad=True)
        call(x, scale).backward()
        assert x.grad.tolist() == [scale] * 3
    assert len(runs) == 1
    call(torch.ones(4, requires_grad=True), 1.0)
    assert len(runs) == 2


def test_whole_numbers_are_those_of_python():
    """int32 has no 10**10, and is no int."""
    x = torch.ones(1)
    assert carried(lambda x, n: x * float(n * n))(x, 100_000).item() == 1e10
    assert carried(lambda x, n: x * n if isinstance(n, int) else x)(x, 7).item() == 7
    assert carried(lambda x, n: (x, n + 1))(x, 7)[1] == 8


@pytest.mark.parametrize("function", [
    lambda x, number: x * number.is_integer(), lambda x, number: x * (2 if number > 1 else 3),
    lambda x, number: x * jnp.ones(int(number)).sum()], ids=["its method", "branch", "shape"])
def test_a_float_that_must_be_known(function):
    found = carried(function)
    assert [found(torch.ones(1), number).item() for number in (1.5, 2.0, 1.5)] == [
        function(jnp.ones(1), number).item() for number in (1.5, 2.0, 1.5)]


def test_a_number_that_must_be_known():
    function, runs = counted(lambda x, axis: x.sum(axis))
    call = carried(function)
    x = torch.ones(2, 3, requires_grad=True)
    shapes = [tuple(call(x, axis).shape) for axis in (0, 1, 0, 1)]
    assert shapes == [(3,), (2,)] * 2
    before = len(runs)
    call(x, 0)
    assert len(runs) == before


def test_a_branch_by_a_value():
    @carried
    def function(x):
        return x * 2 if x.sum() > 0 else x * 3

    x, y = torch.ones(2, requires_grad=True), -torch.ones(2, requires_grad=True)
    y.retain_grad()
    function(x).sum().backward()
    function(y).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2, 2], [3, 3])


def test_a_function_that_is_compiled_already():
    x = torch.ones(3, requires_grad=True)
    carried(jax.jit(jnp.sin))(x).sum().backward()
    assert torch.allclose(x.grad, torch.ones(3).cos())
    power = carried(jax.jit(lambda x, n: x ** n if n > 1 else x, static_argnames="n"))
    assert power(torch.full((2,), 3.0), n=2).tolist() == [9, 9]


def test_what_tells_arguments_from_others():
    function, runs = counted(lambda x, word, options: x * len(word) + len(options))
    call = carried(function)
    x = torch.zeros(1)
    given = [("a", {}), ("ab", {}), ("a", {"b": 1}), ("a", {"c": 1}), ("a", [1]), ("a", (1,))]
    assert [call(x, *each).item() for each in given] == [0, 0, 1, 1, 1, 1]
    assert len(runs) == len(given)
    assert [call(x, *each).item() for each in given] == [0, 0, 1, 1, 1, 1]
    assert len(runs) == len(given)


@dataclass
class Named(dict):
    name: str = "a"


@dataclass(slots=True)
class Slotted:
    name: str = "a"


class More(Slotted):
    __slots__ = ("more",)


class Word(str):
    """It has attributes."""


def with_attribute(thing, name, value):
    setattr(thing, name, value)
    return thing


class Mutable:
    """Stands for itself as the key of a dictionary."""


def with_item(container, key, value):
    container[key] = value
    return container


# By name: a function, and arguments that differ where they look equal.
LOOK_ALIKES = {
    "range": (lambda x, given: x * given.stop, [range(0, 3, 2), range(0, 4, 2)]),
    "dictionary that is a dataclass": (lambda x, given: x * len(given), [Named(), with_item(Named(), "b", "c")]),
    "slots of a subclass": (lambda x, given: x * given.more, [with_attribute(More(), "more", n) for n in (2, 3)]),
    "subclass of str": (lambda x, given: x * given.size, [with_attribute(Word("a"), "size", n) for n in (2, 3)]),
    "method of a builtin": (lambda x, given: x * given("a"), [{"a": 2}.get, {"a": 3}.get]),
    "keys that are equal": (lambda x, given: x * (2 if next(iter(given))[0] is True else 3),
                            [{(1,): ""}, {(True,): ""}]),
}


@pytest.mark.parametrize(("function", "given"), LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_what_looks_alike(function, given):
    call = carried(function)
    assert [call(torch.ones(1), each).item() for each in given] == [function(1, each) for each in given]


def test_a_key_of_a_dictionary_that_changes():
    call, key = carried(lambda x, given: x * next(iter(given)).size), Mutable()
    for key.size in (2, 3):
        assert call(torch.ones(1), {key: ""}).item() == key.size


def test_objects_in_a_result_are_the_callers():
    call = carried(lambda x: (x * 2, {1}, with_attribute(Mutable(), "size", 1)))
    for _ in range(2):
        _, numbers, thing = call(torch.ones(1))
        assert (numbers, thing.size) == ({1}, 1)
        numbers.add(2)
        thing.size = 2


def test_one_shape_that_cannot_be_compiled_leaves_others_compiled():
    function, runs = counted(lambda x: x * float(x[0]) if len(x) == 1 else x * 2)
    call = carried(function)
    call(torch.ones(3)), call(torch.ones(1))
    before = len(runs)
    call(torch.ones(3))
    assert len(runs) == before


def test_numbers_that_are_equal_and_differ():
    call = carried(lambda x, number: x > 0 if isinstance(number, bool) else x + number)
    x = torch.ones(1)
    assert [call(x, each).dtype for each in (True, 1, 1.0)] == [torch.bool, torch.float32, torch.float32]


def test_an_error_of_the_function_is_its_own():
    @carried
    def function(x, y):
        return x @ y

    with pytest.raises(TypeError, match="dot_general requires contracting dimensions"):
        function(torch.ones(2, 3), torch.ones(2, 3))
    assert function(torch.ones(2, 3), torch.ones(3, 2)).shape == (2, 2)


# ---- memory ----------------------------------------------------------------------------------------------------------

def test_memory_may_be_written_right_after_the_call():
    size = 1_000_000
    call = carried(lambda x: jnp.sum(jnp.sqrt(x * x)) / 1000)
    for _ in range(10):
        x = torch.full((size,), 1.5)
        result = call(x)
        x.zero_()
        assert round(result.item()) == 1500


def test_a_cotangent_may_be_written_right_after_the_call():
    x = torch.full((1_000_000,), 2.0, requires_grad=True)
    call = carried(lambda x: x * x)
    for _ in range(10):
        cotangent = torch.ones_like(x)
        gradient, = torch.autograd.grad(call(x), x, cotangent)
        cotangent.zero_()
        assert gradient.min() == gradient.max() == 4


@pytest.mark.parametrize("function", [
    lambda x: x, lambda x: x.reshape(-1), lambda x: (x, x), lambda x: (jnp.exp(x),) * 2,
    lambda x: x if x.sum() > 0 else -x,
], ids=["itself", "reshaped", "twice", "twice the same", "not compiled"])
def test_results_have_memory_of_their_own(function):
    x = torch.ones(2, 3, requires_grad=True)
    results = carried(function)(x)
    results = results if isinstance(results, tuple) else (results,)
    addresses = {x.data_ptr(), *(result.data_ptr() for result in results)}
    assert len(addresses) == 1 + len(results)


def test_nothing_is_kept_longer_than_torch_keeps_it():
    call = carried(lambda x, y: jnp.sin(x) * y)
    call(torch.ones(3, requires_grad=True), torch.ones(3))      # compiled
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    gone = [weakref.ref(x), weakref.ref(y)]
    result = call(x, y)
    gone.append(weakref.ref(result))
    del y
    assert gone[1]() is not None            # it is needed for the gradient
    result.sum().backward()
    assert gone[1]() is None                # as soon as torch lets go of it, though the result is there
    del x, result
    assert [each() for each in gone] == [None] * 3


def test_two_thousand_steps_leave_nothing():
    call = carried(lambda x: jnp.sin(x).sum())
    x = torch.ones(100, requires_grad=True)

    def step():
        call(x).backward()

    for _ in range(100):
        step()
    gc.collect()
    before, arrays = len(gc.get_objects()), len(jax.live_arrays())
    for _ in range(2000):
        step()
    gc.collect()
    assert abs(len(gc.get_objects()) - before) < 100
    assert len(jax.live_arrays()) == arrays


def test_many_forms_are_not_all_kept():
    function, runs = counted(lambda x, word: x * len(word))
    call, x = carried(function), torch.ones(2)
    for number in range(KEPT + 1):
        call(x, "a" * number)
    before = len(runs)
    call(x, "a" * KEPT)
    assert len(runs) == before
    call(x, "")
    assert len(runs) == before + 1


# ---- threads ---------------------------------------------------------------------------------------------------------

def test_threads():
    call = carried(lambda x, scale: (jnp.sin(x) * scale).sum())

    def work(number):
        for _ in range(30):
            x = torch.full((50,), float(number), requires_grad=True)
            call(x, number).backward()
            assert torch.allclose(x.grad, x.detach().cos() * number, atol=1e-6)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


# ---- a training run --------------------------------------------------------------------------------------------------

def spring_loss_of_jax(positions):
    return jnp.mean((jnp.diff(positions, axis=-1) - 0.5) ** 2) + jnp.mean(jnp.abs(positions))


def spring_loss_of_torch(positions):
    return ((positions.diff(dim=-1) - 0.5) ** 2).mean() + positions.abs().mean()


def losses(loss_of):
    """Of a network that learns for 40 steps."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5)).double()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    inputs = torch.randn(32, 4, dtype=torch.float64)
    seen = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = loss_of(network(inputs))
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


def test_a_network_of_torch_learns_by_a_loss_of_jax():
    with jax.enable_x64(True):
        found = losses(carried(spring_loss_of_jax))
    assert np.allclose(found, losses(spring_loss_of_torch), rtol=1e-9)
    assert found[-1] < found[0] / 2


# ---- what is refused -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("to", "keywords", "error", "match"), [
    ("numpy", {"returns": "like"}, dlbridge.UnsupportedError, "^accepts: gradients True: .*numpy"),
    ("cupy", {"returns": "like"}, dlbridge.UnsupportedError, "^accepts: gradients True: .*cupy"),
    ("jax", {}, ValueError, "^accepts: returns None"),
    ("jax", {"returns": "like", "detach": True}, ValueError, "^accepts: detach True"),
    ("jax", {"returns": "like", "vmap_method": "sequential"}, TypeError, "vmap_method"),
    ("torch", {"returns": "like", "vmap_method": "all"}, ValueError, "^accepts: vmap_method 'all'"),
    ("jax", {"returns": "unlike"}, ValueError, "^accepts: returns 'unlike'"),
])
def test_what_is_refused(to, keywords, error, match):
    with pytest.raises(error, match=match):
        dlbridge.accepts(to, gradients=True, **keywords)


GRADIENTS = r'\(pass gradients=True and returns="like" to dlbridge.accepts'


@pytest.mark.parametrize("keywords", [{}, {"returns": "like"}], ids=["plain", "like"])
def test_who_forgets_the_keyword_is_told(keywords):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(dlbridge.ConversionError, match=rf"\(x\): torch: requires_grad True: .*{GRADIENTS}"):
        dlbridge.accepts("jax", **keywords)(jnp.sin)(x)
    with pytest.raises(dlbridge.UnsupportedError, match=r"\(x\): .*is_traced.*pass gradients=True, or callback=True"):
        jax.grad(dlbridge.accepts("torch", **keywords)(lambda x: x.sum()))(jnp.ones(2))


def test_the_result_of_a_network_whose_weights_learn():
    network = torch.nn.Linear(2, 1)
    with pytest.raises(dlbridge.ConversionError, match=f", result: torch: requires_grad True: .*{GRADIENTS}"):
        dlbridge.accepts("torch", returns="like")(network)(jnp.ones(2))
    assert dlbridge.accepts("torch", returns="like", gradients=True)(network)(jnp.ones(2)).shape == (1,)
    # For NumPy it is the other half of the hint.
    assert dlbridge.accepts("torch", returns="like", detach=True)(network)(np.ones(2, "float32")).shape == (1,)


def test_a_coroutine_function_is_refused():
    async def function(x):
        return x

    with pytest.raises(TypeError, match="is a coroutine function"):
        carried(function)


def test_a_static_method_that_is_decorated_first_is_refused():
    with pytest.raises(TypeError, match="put @classmethod, @staticmethod or @property above"):
        carried(staticmethod(jnp.sin))


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="cannot be called"):
        carried(3)


def test_without_jit_results_are_the_callers_own():
    same = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: x)
    for wants in False, True:
        x = torch.ones(16, requires_grad=wants)
        with jax.disable_jit():
            same(x).detach().add_(1)
        assert x.tolist() == [1] * 16


def test_without_copies_only_what_jax_compiles_takes_tensors():
    """JAX may keep the arguments of all else, and their owners may write to them."""
    def scaled(x, y):
        return x * 2 if x[0] > 0 else y

    function = dlbridge.accepts("jax", returns="like", gradients=True, copy=False)(scaled)
    tensor = dlbridge.convert(dlbridge.empty(4, "float32"), "torch")
    gradient = jax.grad(lambda x: function(x, tensor).sum())
    for call in (lambda: function(tensor, tensor)), (lambda: gradient(jnp.ones(4))):
        with pytest.raises(dlbridge.CopyRequiredError, match=r"pass copy=None"):
            call()
    assert dlbridge.accepts("jax", returns="like", gradients=True, copy=False)(lambda x: x + x)(tensor).shape == (4,)
