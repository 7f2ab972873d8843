"""Functions that torch.compile compiles, and what dlbridge is in them: nothing, or one break, and no warning."""

import pytest
from support.children import in_child

pytestmark = pytest.mark.needs("torch")


@in_child
def test_a_function_behind_accepts_that_is_called_with_tensors_is_no_break():
    import numpy as np
    import torch

    import dlbridge

    @dlbridge.accepts("torch")
    def scaled(x, scale=2.0):
        return torch.sin(x) * scale

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
        return scaled(total, scale=3.0) + model(rest["x"], shift=x)

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
    refusing = dlbridge.accepts("torch", others="raise")(lambda x, k: x * k)
    try:
        torch.compile(refusing, backend="eager")(x, 3)
    except dlbridge.UnsupportedError:
        pass
    else:
        raise AssertionError("a number was handed on")


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
    import torch
    import torch._dynamo

    import dlbridge

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
