"""Functions that torch.compile compiles, and what dlbridge is in them: nothing, or one break, and no warning."""

import pytest
from support.children import in_child

pytestmark = pytest.mark.needs("torch")


@in_child
def test_a_function_behind_accepts_that_is_called_with_tensors_is_no_break():
    import numpy as np
    import pytest
    import torch

    import dlbridge

    @dlbridge.accepts("torch")
    def scaled(x, scale=2.0, dtype=None):
        return (torch.sin(x) * scale).to(dtype)

    @dlbridge.accepts("torch", returns="like")
    def parts(batch):
        batch["y"] = 1                          # of a dictionary of its own
        return [batch["x"] + batch["more"][1], {"x": batch["x"], "text": "a"}]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((3,), 3.0))

        @dlbridge.accepts("torch", returns="like")
        def forward(self, x, *, shift=None):
            return x * self.weight if shift is None else x * self.weight + shift

    model = Model()

    def all_of_them(x):
        batch = {"x": x, "more": (1, model.weight, None)}
        total, rest = parts(batch)
        assert "y" not in batch
        return scaled(total, scale=3.0, dtype=torch.float64) + model(rest["x"], shift=x)

    kept = [torch.ones(2)]

    @dlbridge.accepts("torch", returns="like")
    def gives_its_own(x):
        return kept

    def appends(x):
        made = gives_its_own(x)
        made.append(x)
        return len(kept)

    for _ in range(2):
        assert torch.compile(appends, backend="eager")(torch.ones(1)) == 1      # as without a compiler

    x = torch.ones(3)
    compiled = torch.compile(all_of_them, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), all_of_them(x))
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(x), model(x))
    compiled(x).sum().backward()
    assert model.weight.grad is not None
    assert scaled(np.zeros(3)).tolist() == [0, 0, 0]
    on_meta = dlbridge.accepts(torch.empty(1, device="meta"))(lambda x: x * 2)
    with pytest.raises(dlbridge.DLBridgeError):     # an example's device is not forgotten
        torch.compile(on_meta, backend="eager")(x)
    refusing = dlbridge.accepts("torch", others="raise")(lambda x, k: x * k)
    with pytest.raises(dlbridge.UnsupportedError):  # a number is not handed on
        torch.compile(refusing, backend="eager")(x, 3)


@in_child
def test_what_is_converted_in_a_compiled_function_is_a_break_without_a_warning():
    import numpy as np
    import torch

    import dlbridge

    numbers = np.full(3, 2.0)

    @dlbridge.accepts("numpy", returns="like")
    def of_numpy(x):
        assert type(x) is np.ndarray
        return np.sin(x)

    @dlbridge.accepts("torch", returns="like")
    def of_torch(x, y):
        return x * y

    @dlbridge.accepts("torch", copy=True)
    def copies(x):
        x += 1
        return x

    for function, breaks in (
        (lambda x: of_numpy(x * 2) + 1, 2), (lambda x: of_torch(x * 2, numbers) + 1, 2),
        (lambda x: of_torch(numbers, x * 2) + 1, 2), (lambda x: copies(x * 2) + x, 1),
    ):
        x = torch.ones(3, dtype=torch.float64)
        compiled = torch.compile(function, backend="eager")
        for _ in range(2):
            made, expected = compiled(x), function(x)
            assert type(made) is type(expected)
            assert made.tolist() == expected.tolist()
        torch._dynamo.reset()
        assert len(torch._dynamo.explain(function)(x).break_reasons) == breaks


@in_child
def test_a_conversion_to_torch_is_the_tensor_where_dynamo_came_first():
    import importlib

    import torch
    import torch._dynamo

    import dlbridge

    importlib.reload(dlbridge.trees)            # torch is told once
    for to in "torch", torch, torch.Tensor:
        def function(x, to=to):
            return dlbridge.convert(torch.sin(x), to) * dlbridge.convert(x, to=to)

        x = torch.ones(3)
        assert torch.equal(torch.compile(function, backend="eager", fullgraph=True)(x), function(x))
    for function in (
        lambda x: dlbridge.convert(torch.sin(x), "numpy") * 2,
        lambda x: dlbridge.convert(x * 2, "torch", copy=True) + 1,
    ):
        made, expected = torch.compile(function, backend="eager")(x), function(x)
        assert type(made) is type(expected)
        assert made.tolist() == expected.tolist()
        torch._dynamo.reset()
        assert torch._dynamo.explain(function)(x).graph_break_count == 1


@pytest.mark.needs("cloudpickle")
@in_child
def test_such_a_function_is_sent_to_other_processes_after_it_was_compiled():
    import cloudpickle
    import numpy as np
    import torch

    import dlbridge

    @dlbridge.accepts("torch", returns="like")
    def doubled(x, y):
        return x * y

    torch.compile(lambda x: doubled(x, np.ones(1)), backend="eager")(torch.ones(1))
    again = cloudpickle.loads(cloudpickle.dumps(doubled))
    assert again(np.ones(2), 2).tolist() == [2, 2]


# ---- functions of JAX with gradients ---------------------------------------------------------------------------------

@pytest.mark.needs("jax")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@in_child
def test_a_function_of_jax_is_an_operator_of_the_graph(backend):
    import jax
    import jax.numpy as jnp
    import torch

    import dlbridge

    @dlbridge.accepts("jax", returns="like", gradients=True)
    def energy(x, scale=1.0, *, name=None, more=()):
        loss = scale * jnp.sum(jnp.sin(x) ** 2)
        return {"loss": loss, "rest": (jnp.argmax(x).astype("int32"), name, [x * len(more)])}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(0, 1, 6).reshape(2, 3))

        def forward(self, x, scale):
            made = energy(torch.sin(x) @ self.weight.T, scale, name="a", more=(1, [True]))
            label, name, (twice,) = made["rest"]
            assert name == "a"
            return made["loss"] * 2 + twice.sum(), label

    graphs = []

    def count(graph, examples):
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, examples)

    model = Model()
    compiled = torch.compile(model, backend=count, fullgraph=True)
    x = torch.linspace(-1, 1, 12).reshape(4, 3)
    for scale in range(1, 12):                  # of another float no other graph is made
        gradients = []
        for run in model, compiled:
            loss, label = run(x, scale / 2)
            loss.backward()
            gradients.append((loss.detach(), label, model.weight.grad))
            model.weight.grad = None
        torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)
    assert len(graphs) <= 3
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, 1.0), model(x, 1.0))
    for rows in range(1, 5):
        torch.testing.assert_close(compiled(x[:rows], 1.0), model(x[:rows], 1.0))
    assert jax.config.jax_enable_x64 is False


@pytest.mark.needs("jax")
@in_child
def test_types_of_operators():
    import jax
    import jax.numpy as jnp
    import pytest
    import torch

    import dlbridge

    @dlbridge.accepts("jax", returns="like", gradients=True, narrow=True)
    def product(x, y):
        return x * y, jnp.sum(x)

    x = torch.arange(6.0).reshape(2, 3)
    for given, other in (
        (x.bfloat16(), 2), (x.int(), 3), (x.to(torch.complex64), 2j), (x.T, True), (x[:, 1:], x[:, :2]), (x[:0], 1.5),
        (x[1, 2], x), (x.double(), x), (x.flip(0), x),
    ):
        with torch.device("meta"):          # the operator's own tensors are elsewhere
            made = torch.compile(product, backend="eager", fullgraph=True)(given, other)
        torch.testing.assert_close(made, product(given, other), rtol=0, atol=0)
        torch._dynamo.reset()
        for turned in given, given * 2:
            made = torch.compile(product, backend="eager", fullgraph=True)(turned, other)
            torch.testing.assert_close(made, product(turned, other), rtol=0, atol=0)
        torch._dynamo.reset()
    compiled = torch.compile(product, backend="eager", fullgraph=True)
    with jax.enable_x64(True):
        made = compiled(x.double().requires_grad_(), x)
    made[0].sum().backward()                    # as they were compiled
    assert made[0].dtype == torch.float64
    with pytest.raises(dlbridge.ConversionError, match="jax_enable_x64 False: was True when torch compiled"):
        compiled(x.double().requires_grad_(), x)
    torch._dynamo.reset()

    def complex_gradient(run):
        z = torch.tensor([1 + 2j], dtype=torch.complex64, requires_grad=True)
        run(z, 2 - 1j)[0].real.sum().backward()
        return z.grad

    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)
    assert torch.equal(complex_gradient(compiled), complex_gradient(product))


@pytest.mark.needs("jax")
@in_child(warnings="ignore")
def test_gradients_of_gradients_of_operators():
    import pytest
    import torch

    import dlbridge

    cube = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: x ** 3)
    compiled = torch.compile(lambda x: cube(x * 1.0), backend="eager", fullgraph=True)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    first, = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    second, = torch.autograd.grad(first.sum(), x)
    assert (first.tolist(), second.tolist()) == ([3, 12], [6, 12])
    with pytest.raises(dlbridge.UnsupportedError, match="is_grads_batched True"):
        torch.autograd.grad(compiled(x), x, torch.eye(2), is_grads_batched=True)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(dlbridge.UnsupportedError, match="no forward mode"):
        compiled(torch.autograd.forward_ad.make_dual(x.detach(), x.detach()))


@pytest.mark.needs("jax")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@in_child(warnings="ignore")
def test_gradients_are_taken_in_a_compiled_function(backend):
    import torch

    import dlbridge

    square = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: (x ** 2).sum())

    class Model:
        @dlbridge.accepts("jax", returns="like", gradients=True)
        def square(self, x):
            return (x ** 2).sum()

    for function in square, Model().square:
        def step(x, function=function):
            function(x * 3).backward()
            return x.grad

        def twice(x, function=function):
            return torch.func.grad(function)(x) * 2

        x = torch.tensor([1.0, 2.0], requires_grad=True)
        assert torch.compile(step, backend=backend)(x).tolist() == [18, 36]
        assert torch.compile(twice, backend=backend)(x.detach()).tolist() == [4, 8]


@pytest.mark.needs("jax")
@in_child
def test_what_cannot_be_an_operator_is_a_break():
    import collections
    import enum
    import warnings

    import jax
    import numpy as np
    import pytest
    import torch

    import dlbridge

    pair = collections.namedtuple("pair", "a b")
    key = enum.Enum("key", "a").a

    def of_jax(function, **keywords):
        return dlbridge.accepts("jax", returns="like", gradients=True, **keywords)(function)

    class Model:
        factor = 3

        @dlbridge.accepts("jax", returns="like", gradients=True)
        def scaled(self, x):
            return x * self.factor

    @of_jax
    def failing(x):
        raise KeyError("my own")

    strict = of_jax(lambda x, k: x * k, others="raise")
    branch = of_jax(lambda x: x * 2 if x.sum() > 3 else x)
    keyed = of_jax(lambda x: (x, jax.random.key(0)))
    named = of_jax(lambda x: pair(x, x * 2))
    by_dtype = of_jax(lambda x: x[torch.float32] - x[torch.float64])
    by_key = of_jax(lambda x: {key: x})
    product = of_jax(lambda x, y: x * y)
    square = of_jax(lambda x: (x ** 2).sum())
    model = Model()
    x = torch.arange(6.0).reshape(2, 3)
    for function in (
        lambda x: branch(x * 2), lambda x: keyed(x * 2)[0], lambda x: named(x * 2).b, lambda x: by_key(x)[key],
        lambda x: by_dtype({torch.float32: x, torch.float64: x * 2}),
        lambda x: (by_dtype({torch.float32: x, torch.float64: x * 2})
                   + by_dtype({torch.float64: x, torch.float32: x * 3})),
        lambda x: model.scaled(x * 2),
        lambda x: product(x * 2, np.ones(3, "f4")), lambda x: product(2, 3) + x * 2,
        lambda x: torch.func.vmap(square)(x * 2),
    ):
        torch._dynamo.reset()
        assert torch.equal(torch.compile(function, backend="aot_eager")(x), function(x))
    for function, error, words in (
        (lambda x: square(x.double()), dlbridge.ConversionError, "float64: would be narrowed silently"),
        (lambda x: failing(x), KeyError, "my own"),
        (lambda x: strict(x, 3), dlbridge.UnsupportedError, "value 3: is no array"),
        (lambda x: product(torch.empty_like(x, device="meta"), x), dlbridge.UnsupportedError, "is_meta True"),
        (lambda x: torch.func.jvp(square, (x,), (x,)), dlbridge.UnsupportedError, "has no forward mode"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")         # torch has some of its own about jvp
            with pytest.raises(error, match=words):
                torch.compile(function, backend="eager")(x)


@pytest.mark.needs("jax")
@in_child
def test_an_operation_of_another_process():
    import pytest
    import torch

    import dlbridge
    from dlbridge.gradients import compiled

    double = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: x * 2)
    torch.compile(double, backend="eager", fullgraph=True)(torch.ones(1))
    number, = compiled.OPERATIONS
    assert torch.ops.dlbridge.of_jax(number, [torch.ones(1)])[0].tolist() == [2]
    with pytest.raises(dlbridge.ConversionError, match="is a function of JAX in another process"):
        torch.ops.dlbridge.of_jax(number + 1, [torch.ones(1)])


@pytest.mark.needs("jax")
@in_child
def test_a_function_of_torch_that_has_gradients_in_jax_is_no_break():
    import numpy as np
    import torch

    import dlbridge

    scaled = dlbridge.accepts("torch", returns="like", gradients=True)(lambda x, k: torch.sin(x) * k)
    numbers = np.full(3, 2.0)
    x = torch.ones(3, dtype=torch.float64)
    whole = torch.compile(lambda x: scaled(x * 2, 3) + 1, backend="eager", fullgraph=True)
    assert torch.equal(whole(x), scaled(x * 2, 3) + 1)
    assert torch.equal(torch.compile(lambda x: scaled(x * 2, numbers) + 1, backend="eager")(x), scaled(x * 2, 2) + 1)


@pytest.mark.needs("jax")
@in_child
def test_a_function_of_jax_that_calls_one_of_torch_keeps_its_gradient():
    import pytest
    import torch

    import dlbridge

    inner = dlbridge.accepts("torch", returns="like", gradients=True)(torch.sin)
    outer = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: inner(x) * 2)
    for backend in "eager", "aot_eager":
        x = torch.ones(2, requires_grad=True)
        torch.compile(lambda x: outer(x), backend=backend)(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * torch.cos(x.detach()))
    with pytest.raises(Exception, match=r"dlbridge.accepts: is no part of this graph; without fullgraph=True"):
        torch.compile(lambda x: outer(x), backend="eager", fullgraph=True)(x)


@pytest.mark.needs("jax")
@in_child
def test_a_watch_names_the_line_of_the_program_where_dynamo_is_loaded():
    import sys

    import jax.numpy as jnp
    import torch._dynamo  # noqa: F401

    import dlbridge

    double = dlbridge.accepts("torch", returns="like", gradients=True)(lambda x: x * 2)
    with dlbridge.watch() as copies:
        double(jnp.ones(64))
    assert {copy.place.rpartition(":")[0] for copy in copies} == {sys.argv[0]}
