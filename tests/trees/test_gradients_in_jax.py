"""accepts("torch", gradients=True): JAX differentiates functions of torch."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads
from support.differentiable import FUNCTIONS, assert_close, cotangent, in_turn

import dlbridge

pytestmark = pytest.mark.needs("torch", "jax")

DTYPES = ("float32", "complex64", "float64", "bfloat16")


def carried(function, **keywords):
    return dlbridge.accepts("torch", returns="like", gradients=True, **keywords)(function)


def inputs_of(function, dtype):
    return [jnp.asarray(array, dtype) for array in function.inputs(dtype)]


def x64(dtype):
    return jax.enable_x64(dtype in ("float64", "complex128"))


# ---- values ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "dtype"), in_turn(DTYPES))
def test_results_and_gradients_are_those_of_jax(name, dtype):
    function = FUNCTIONS[name]
    with x64(dtype):
        inputs = inputs_of(function, dtype)
        expected, pull_back = jax.vjp(jax.jit(function.jax), *inputs)
        given = carried(function.torch)
        result, pull_back_too = jax.vjp(jax.jit(given) if dtype in DTYPES[:2] else given, *inputs)
        assert_close(result, expected)
        seed = jnp.asarray(cotangent(expected), expected.dtype)
        for gradient, own in zip(pull_back_too(seed), pull_back(seed), strict=True):
            assert_close(gradient, own)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_finite_differences(name):
    function = FUNCTIONS[name]
    dtype = "float64" if function.real else "complex128"
    with x64(dtype):
        check_grads(carried(function.torch), inputs_of(function, dtype), order=1, modes=["rev"])


@pytest.mark.parametrize("compiled", [False, True], ids=["at once", "jit"])
@pytest.mark.parametrize("name", ["sin", "network", "conjugate", "recurrence", "convolution"])
def test_gradients_of_gradients_against_finite_differences(name, compiled):
    function = FUNCTIONS[name]
    dtype = "float64" if function.real else "complex128"
    given = carried(function.torch)
    with x64(dtype):
        check_grads(jax.jit(given) if compiled else given, inputs_of(function, dtype), order=2, modes=["rev"])


# ---- JAX's own ways --------------------------------------------------------------------------------------------------

def cubes_of_jax(x):
    return (x ** 3).sum()


def cubes_of_torch(x):
    return (x ** 3).sum()


def scanned(function, x):
    """A loop whose state goes through the function."""
    return jax.lax.scan(lambda state, row: (state * function(row), function(state)), jnp.ones(()), x)[1].sum()


X = [1.0, 2.0, 4.0]
WAYS = {
    "jit": lambda f, x: jax.jit(f)(x),
    "grad": lambda f, x: jax.grad(f)(x),
    "jit of grad": lambda f, x: jax.jit(jax.grad(f))(x),
    "grad of jit": lambda f, x: jax.grad(jax.jit(f))(x),
    "value_and_grad": lambda f, x: jax.value_and_grad(f)(x)[1],
    "vmap": lambda f, x: jax.vmap(f)(jnp.stack([x, 2 * x])),
    "vmap of axis 1": lambda f, x: jax.vmap(f, in_axes=1)(jnp.stack([x, 2 * x], 1)),
    "jit of vmap": lambda f, x: jax.jit(jax.vmap(f))(jnp.stack([x, 2 * x])),
    "vmap of grad": lambda f, x: jax.vmap(jax.grad(f))(jnp.stack([x, 2 * x])),
    "vmap of vmap": lambda f, x: jax.vmap(jax.vmap(f))(jnp.stack([x, 2 * x, 3 * x, 4 * x]).reshape(2, 2, 3)),
    "grad of vmap": lambda f, x: jax.grad(lambda batch: jax.vmap(f)(batch).sum())(jnp.stack([x, 2 * x])),
    "jacrev": lambda f, x: jax.jacrev(lambda x: f(x) * x)(x),
    "hessian": lambda f, x: jax.jacrev(jax.jacrev(f))(x),
    "third": lambda f, x: jax.grad(lambda x: jax.grad(lambda x: jax.grad(f)(x).sum())(x).sum())(x),
    "scan": lambda f, x: scanned(f, x),
    "grad of scan": lambda f, x: jax.grad(lambda x: scanned(f, x))(x),
    "jit of grad of scan": lambda f, x: jax.jit(jax.grad(lambda x: scanned(f, x)))(x),
    "checkpoint": lambda f, x: jax.grad(jax.checkpoint(f))(x),
    "cond": lambda f, x: jax.grad(lambda x: jax.lax.cond(x[0] > 0, f, lambda x: x[0], x))(x),
    "linear_transpose of vjp": lambda f, x: jax.jit(lambda ct: jax.vjp(f, x)[1](ct)[0])(jnp.float32(2)),
    "grad by the cotangent": lambda f, x: jax.grad(lambda ct: jax.vjp(f, x)[1](ct)[0].sum())(jnp.float32(2)),
    "disable_jit": lambda f, x: without_jit(lambda: jax.vmap(jax.grad(f))(jnp.stack([x, 2 * x]))),
}


def without_jit(run):
    with jax.disable_jit():
        return run()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_transformations(way):
    x = jnp.array(X)
    assert jnp.allclose(way(carried(cubes_of_torch), x), way(cubes_of_jax, x))


@pytest.mark.parametrize("method", ["expand_dims", "broadcast_all"])
@pytest.mark.parametrize("way", ["vmap", "vmap of axis 1", "jit of vmap", "vmap of grad", "grad of vmap"])
def test_a_function_that_takes_batches(way, method):
    sizes = []

    def cubes(x):
        sizes.append(x.ndim)
        return (x ** 3).sum(-1)

    x = jnp.array(X)
    assert jnp.allclose(WAYS[way](carried(cubes, vmap_method=method), x), WAYS[way](cubes_of_jax, x))
    assert 2 in sizes


def test_a_batch_beside_what_is_no_batch():
    def product(x, weight):
        return torch.einsum("...i,...i->...", torch.sin(x), weight)

    x, weight = jnp.arange(6.0).reshape(2, 3), jnp.arange(3.0)
    expected = jax.vmap(jax.grad(lambda x, weight: jnp.sin(x) @ weight, argnums=(0, 1)), (0, None))(x, weight)
    for method in ("sequential", "expand_dims", "broadcast_all"):
        found = jax.vmap(jax.grad(carried(product, vmap_method=method), argnums=(0, 1)), (0, None))(x, weight)
        assert all(map(jnp.allclose, found, expected))


def test_forward_mode_is_refused_by_jax():
    with pytest.raises(TypeError, match="can't apply forward-mode"):
        jax.jvp(carried(cubes_of_torch), (jnp.ones(2),), (jnp.ones(2),))


# ---- what is differentiated ------------------------------------------------------------------------------------------

def layer(parameters, x, *, scale=1.0, mode="plain"):
    result = torch.tanh(x @ parameters["weight"]) * scale
    return {"result": result, "best": result.argmax().int(), "loss": (result.sum(), None), "mode": mode}


@pytest.mark.parametrize("compiled", [False, True], ids=["at once", "jit"])
def test_containers_keywords_and_results_of_other_kinds(compiled):
    weight, x = jnp.arange(6.0).reshape(3, 2) / 6, jnp.ones((4, 3))
    steps = jnp.zeros(2, int)
    seen = []

    def loss(weight):
        given = carried(layer)({"weight": weight, "steps": steps}, x=x, scale=2.0, mode="other")
        seen.append((given["mode"], given["best"].dtype.name, given["result"].shape))
        return given["loss"][0]

    found = (jax.jit(jax.grad(loss)) if compiled else jax.grad(loss))(weight)
    assert jnp.allclose(found, jax.grad(lambda weight: (jnp.tanh(x @ weight) * 2).sum())(weight), atol=1e-6)
    assert set(seen) == {("other", "int32", (4, 2))}


def test_only_what_is_differentiated_is_asked_of_torch():
    wanted = []

    def product(x, y):
        wanted.append((x.requires_grad, y.requires_grad))
        return (x * y).sum()

    for way in (jax.grad, lambda f: jax.jit(jax.grad(f))):
        assert way(carried(product))(jnp.ones(2), jnp.full(2, 3.0)).tolist() == [3, 3]
        assert wanted[-1] == (True, False)


def test_arrays_of_integers_take_no_gradient():
    found = jax.grad(carried(lambda x, index: x[index].sum()), allow_int=True)(jnp.ones(3), jnp.array([1, 1]))
    assert found.tolist() == [0, 2, 0]


def test_a_result_that_does_not_depend_on_an_input_gives_zeros():
    for way in (jax.grad, lambda f, **keywords: jax.jit(jax.grad(f, **keywords))):
        found = way(carried(lambda x, y: (x * 2).sum()), argnums=(0, 1))(jnp.ones(2), jnp.ones(3))
        assert [each.tolist() for each in found] == [[2, 2], [0, 0, 0]]
        assert way(carried(lambda x: torch.ones(())))(jnp.ones(2)).tolist() == [0, 0]


def test_a_result_that_nobody_uses():
    call = carried(lambda x: (x * 2, x * 5))
    assert jax.grad(lambda x: call(x)[0].sum())(jnp.ones(2)).tolist() == [2, 2]


def test_without_gradients_torch_keeps_no_graph():
    graphs = []

    def double(x):
        graphs.append(torch.is_grad_enabled())
        return x * 2

    call = carried(double)
    assert call(jnp.ones(2)).tolist() == jax.jit(call)(jnp.ones(2)).tolist() == [2, 2]
    assert set(graphs) == {False}


def test_tensors_and_numbers_are_constants():
    weight = torch.tensor([1.0, 2.0])
    call = carried(lambda x, weight, number: (x * weight * number).sum())
    assert jax.grad(call)(jnp.ones(2), weight, 3).tolist() == [3, 6]
    weight.mul_(2)
    assert jax.jit(jax.grad(call), static_argnums=2)(jnp.ones(2), np.ones(2, "float32"), 3).tolist() == [3, 3]
    assert jax.grad(call)(jnp.ones(2), weight, 3).tolist() == [6, 12]


def test_a_network_takes_its_parameters_as_arguments():
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    call = carried(lambda parameters, x: torch.func.functional_call(network, parameters, (x,)).sum())
    parameters = dlbridge.convert_tree(dict(network.named_parameters()), "jax", detach=True)
    found = jax.jit(jax.grad(call))(parameters, jnp.ones((2, 3)))
    network(torch.ones(2, 3)).sum().backward()
    for name, parameter in network.named_parameters():
        assert np.allclose(found[name], parameter.grad, atol=1e-5)


def test_a_closure_over_weights_takes_no_gradient():
    network = torch.nn.Linear(3, 1)
    found = jax.jit(jax.grad(lambda x: carried(network)(x).sum()))(jnp.ones((2, 3)))
    assert np.allclose(found, network.weight.detach().expand(2, 3))
    assert network.weight.grad is None


def test_called_with_tensors_torch_differentiates_it():
    x = torch.ones(2, requires_grad=True)
    carried(cubes_of_torch)(x).backward()
    assert x.grad.tolist() == [3, 3]
    carried(lambda x, y: (x * y).sum())(x, jnp.ones(2)).backward()
    assert x.grad.tolist() == [4, 4]


def test_a_tensor_that_wants_a_gradient_from_jax_is_refused():
    call = carried(lambda x, weight: (x * weight).sum())
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(dlbridge.ConversionError, match=r"\(weight\): accepts: requires_grad True: would be lost"):
        jax.grad(call)(jnp.ones(2), weight)
    # What the hint says.
    assert jax.grad(call)(jnp.ones(2), weight.detach()).tolist() == [1, 1]
    assert jax.grad(call, 1)(jnp.ones(2), dlbridge.convert(weight, "jax", detach=True)).tolist() == [1, 1]


def test_keys_of_jax_random_are_refused():
    call = carried(lambda x, key: x * torch.rand(2, generator=torch.Generator().manual_seed(int(key[1]))))
    key = jax.random.key(3)
    for way in (lambda f: f, jax.jit):
        with pytest.raises(dlbridge.UnsupportedError, match=r"\(key\): .*pass jax.random.key_data\(x\)"):
            way(call)(jnp.ones(2), key)
    assert call(jnp.ones(2), jax.random.key_data(key)).shape == (2,)


def test_arrays_of_numpy_in_a_result_become_arrays_of_jax():
    _, given = carried(lambda x: (x * 2, np.arange(3, dtype="int32")))(jnp.ones(2))
    assert isinstance(given, jax.Array)


# ---- random numbers --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("way", [
    lambda f: f, jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f)),
    lambda f: lambda x: jax.lax.scan(lambda _, row: (None, f(row)), None, x)[1],
], ids=["at once", "jit", "vmap", "jit of vmap", "scan"])
@pytest.mark.parametrize("method", ["sequential", "broadcast_all", "expand_dims"])
def test_the_gradient_sees_the_random_numbers_of_the_result(way, method):
    call = way(carried(lambda x: torch.nn.functional.dropout(x, 0.5), vmap_method=method))
    masks = []
    for _ in range(2):
        result, pull_back = jax.vjp(call, jnp.ones((4, 100)))
        assert jnp.array_equal(result, pull_back(jnp.ones_like(result))[0])
        masks.append(result)
    assert not jnp.array_equal(*masks)
    assert not jnp.array_equal(masks[0][0], masks[0][1])


def test_gradients_of_gradients_see_them_too():
    call = carried(lambda x: torch.nn.functional.dropout(x, 0.5) ** 3)

    def first(x):
        value, pull_back = jax.vjp(call, x)
        return pull_back(jnp.ones_like(x))[0].sum(), value

    for way in (lambda f: f, jax.jit):
        second, value = way(jax.grad(first, has_aux=True))(jnp.ones(50))
        assert jnp.array_equal(second > 0, value > 0)
        assert set(second.tolist()) == {0, 48}          # 3 * 2 * 8


def test_foreseeing_shapes_uses_no_random_numbers():
    call = jax.jit(carried(lambda x: torch.rand(3) + x))
    torch.manual_seed(3)
    found = call(jnp.zeros(3))
    torch.manual_seed(3)
    assert np.array_equal(found, torch.rand(3))


# ---- shapes ----------------------------------------------------------------------------------------------------------

UNFORESEEABLE = {
    "shape": (lambda x: x[x > 0].sum(), "depend on values"),
    "number of results": (lambda x: x.nonzero(), "depend on values"),
    "branch": (lambda x: x.sum() if x.sum() > 0 else x.mean(), "depend on values"),
    "numpy": (lambda x: torch.from_numpy(x.numpy() * 2), "fails where tensors have no values"),
}


@pytest.mark.parametrize(("function", "reason"), UNFORESEEABLE.values(), ids=UNFORESEEABLE)
@pytest.mark.parametrize("way", [jax.jit, jax.vmap], ids=["jit", "vmap"])
def test_what_depends_on_values_is_refused_where_there_are_none(function, reason, way):
    with pytest.raises(dlbridge.UnsupportedError, match=f"{reason}.*outside of jax.jit"):
        way(carried(function))(jnp.ones((2, 3)))


@pytest.mark.parametrize(("name", "gradient"), [("shape", 1), ("branch", 1)])
def test_what_depends_on_values_runs_outside(name, gradient):
    """What the hint of the refusal says."""
    assert jax.grad(carried(UNFORESEEABLE[name][0]))(jnp.ones(3)).tolist() == [gradient] * 3


def test_a_module_may_change_its_mode_between_two_calls():
    network = torch.nn.Dropout(0.5).eval()
    call, x = carried(network), jnp.ones((4, 50))
    jax.vmap(call)(x)
    network.train()
    result, pull_back = jax.vjp(jax.vmap(call), x)
    assert jnp.array_equal(result, pull_back(jnp.ones_like(result))[0])
    assert set(result.ravel().tolist()) == {0, 2}


class Keeping(torch.nn.Module):
    """It keeps tensors for its next call, in three ways."""

    def __init__(self):
        super().__init__()
        self.steps = None
        self.register_buffer("count", torch.zeros(()))
        self.tables = {}
        self.seen = []

    def forward(self, x):
        if self.steps is None:
            self.steps = torch.arange(3.0)
        self.count = self.count + 1
        self.seen.append(self.count)
        return x * self.steps * self.tables.setdefault("ones", torch.ones(3))


def test_foreseeing_shapes_leaves_nothing_behind():
    module, tables = Keeping(), {}
    call = carried(lambda x: module(x) * tables.setdefault("twos", torch.full((3,), 2.0)))
    for _ in range(2):
        assert jax.jit(lambda x: call(x))(jnp.ones(3)).tolist() == [0, 2, 4]
    assert (module.count.item(), len(module.seen)) == (2, 2)
    kept = [module.steps, module.tables["ones"], tables["twos"], *module.seen]
    assert {type(each) for each in kept} == {torch.Tensor}


class Model:
    """Its method gets the object, not a copy."""

    def __init__(self):
        self.weight, self.calls = torch.ones(2), 0

    @dlbridge.accepts("torch", returns="like", gradients=True)
    def product(self, x):
        self.calls += 1
        return (x * self.weight).sum()


def test_a_method_gets_self():
    model = Model()
    assert isinstance(model.product(jnp.ones(2)), jax.Array)
    assert jax.grad(model.product)(jnp.ones(2)).tolist() == [1, 1]
    assert jax.jit(jax.grad(model.product))(jnp.ones(2)).tolist() == [1, 1]
    assert model.calls >= 4


def test_foreseeing_shapes_writes_nothing():
    buffer, network = torch.ones(3), torch.nn.BatchNorm1d(3)
    call = carried(lambda x: network(x) * buffer.mul_(2))
    lowered = jax.jit(call).lower(jnp.ones((5, 3)))
    assert lowered is not None
    assert (buffer.tolist(), network.num_batches_tracked.item()) == ([1, 1, 1], 0)


# ---- dtypes ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["at once", "jit"])
def test_a_wide_result_without_x64_follows_narrow(way):
    with pytest.raises(dlbridge.ConversionError, match="would be narrowed silently"):
        way(carried(lambda x: x.double()))(jnp.ones(2))
    result, pull_back = jax.vjp(way(carried(lambda x: x.double() * 3, narrow=True)), jnp.ones(2))
    assert (result.dtype, pull_back(jnp.ones(2))[0].tolist()) == ("float32", [3, 3])


# ---- memory ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("way", [
    lambda f: f, jax.jit, jax.vmap, lambda f: lambda x: without_jit(lambda: jax.vmap(f)(x)),
    lambda f: lambda x: jax.vjp(f, x)[0]], ids=["at once", "jit", "vmap", "disable_jit", "vjp"])
@pytest.mark.parametrize("method", ["sequential", "broadcast_all"])
@pytest.mark.parametrize("size", [3, 100_000])
def test_what_torch_writes_no_array_shows(way, method, size):
    kept = torch.zeros(2, size)

    def function(x):
        kept.add_(1)
        return x.clone().mul_(2), kept if x.ndim == 2 else kept[0]

    def writes(x):
        return x.mul_(2) if not x.requires_grad else x * 2

    x = jnp.ones((2, size))
    assert way(carried(writes, vmap_method=method))(x).max() == 2
    assert x.max() == 1
    _, shown = way(carried(function, vmap_method=method))(x)
    before = np.array(shown)
    kept.add_(100)
    assert np.array_equal(shown, before)


def test_nothing_is_kept_longer_than_jax_keeps_it():
    tensors = []

    def function(x):
        tensors.append(weakref.ref(x))
        return x.exp()

    result, pull_back = jax.vjp(carried(function), jnp.ones(3))
    assert tensors[0]() is not None
    pull_back(result)
    pull_back(result)           # as often as one likes
    del pull_back
    gc.collect()
    assert tensors[0]() is None


@pytest.mark.parametrize("way", [jax.grad, lambda f: jax.jit(jax.grad(f))], ids=["at once", "jit"])
def test_many_steps_leave_nothing(way):
    step = way(carried(lambda x: x.sin().sum()))
    x = jnp.ones(100)
    for _ in range(50):
        step(x)
    gc.collect()
    before, arrays = len(gc.get_objects()), len(jax.live_arrays())
    for _ in range(1000):
        step(x)
    gc.collect()
    assert abs(len(gc.get_objects()) - before) < 100
    assert len(jax.live_arrays()) == arrays


# ---- threads ---------------------------------------------------------------------------------------------------------

def test_threads():
    call = carried(lambda x: x.sin().sum())
    step = jax.jit(jax.grad(call))

    def work(number):
        for _ in range(20):
            x = jnp.full(50, float(number))
            assert jnp.allclose(step(x), jnp.cos(x), atol=1e-6)
            assert jnp.allclose(jax.grad(call)(x), jnp.cos(x), atol=1e-6)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


def test_large_arrays_in_many_calls_do_not_wait_for_each_other():
    call = carried(lambda x: x * 2)

    @jax.jit
    def run(x):
        return sum(call(x + number) for number in range(8))

    x = jnp.zeros(2_000_000)
    for _ in range(3):
        assert run(x).max() == 56


# ---- a training run --------------------------------------------------------------------------------------------------

def extractor():
    """A small network for images, as it comes from a file: its weights do not learn."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    return network.double().eval()


def extractor_of_jax(network):
    """The same in JAX, with the same weights."""
    state = dlbridge.convert_tree(dict(network.state_dict()), "jax", readonly="share")

    def convolve(x, name):
        made = jax.lax.conv_general_dilated(x, state[f"{name}.weight"], (1, 1), "SAME")
        return made + state[f"{name}.bias"][:, None, None]

    def run(images):
        x = convolve(images, "0")
        scale = state["1.weight"] / jnp.sqrt(state["1.running_var"] + network[1].eps)
        x = (x - state["1.running_mean"][:, None, None]) * scale[:, None, None] + state["1.bias"][:, None, None]
        x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return jax.nn.relu(convolve(x, "4")).mean((2, 3))

    return run


def losses(features_of):
    """Of a model that learns what to add to its images, and how to read the features."""
    key = jax.random.key(0)
    images = jax.random.normal(key, (16, 1, 8, 8))
    labels = (images.mean((1, 2, 3)) > 0).astype("float64")
    parameters = {"shift": jnp.zeros((1, 8, 8)), "weight": jax.random.normal(key, (8,)), "bias": jnp.zeros(())}

    def loss(parameters):
        scores = features_of(images + parameters["shift"]) @ parameters["weight"] + parameters["bias"]
        return jnp.mean(jnp.logaddexp(0, scores) - labels * scores)

    step = jax.jit(jax.value_and_grad(loss))
    seen = []
    for _ in range(30):
        value, gradients = step(parameters)
        parameters = jax.tree.map(lambda value, gradient: value - 0.5 * gradient, parameters, gradients)
        seen.append(float(value))
    return seen


def test_a_model_of_jax_learns_through_a_network_of_torch():
    with jax.enable_x64(True):
        network = extractor()
        found, expected = losses(carried(network)), losses(extractor_of_jax(network))
    assert np.allclose(found, expected, rtol=1e-9)
    assert found[-1] < found[0] * 0.97


@torch.library.custom_op("dlbridge_tests::gradient", mutates_args=())
def gradient_in_an_operator(x: torch.Tensor) -> torch.Tensor:
    return dlbridge.convert(jax.grad(sum_of_sines)(dlbridge.convert(x, "jax", copy=True)), "torch", copy=True)


@dlbridge.accepts("torch", returns="like", gradients=True)
def sum_of_sines(x):
    return torch.sin(x).sum()


def test_there_are_gradients_where_torch_records_nothing():
    x = jnp.ones(3)
    for gradient in jax.grad(sum_of_sines), jax.jit(jax.grad(sum_of_sines)):
        again = jax.grad(lambda y, gradient=gradient: gradient(y).sum())
        for mode in torch.inference_mode, torch.no_grad:
            with mode():
                assert_close(gradient(x), np.cos(x))
                assert_close(again(x), -np.sin(x))
    assert_close(gradient_in_an_operator(torch.ones(3)), torch.cos(torch.ones(3)))
