"""Gradients across libraries, beside the best wrapper that is written by hand for one function of two arrays.

By hand, memory is shared as well, and what is given back to torch is waited for, or it could be written too early.
A wrapper by hand for jax.jit runs the function of torch once more for the gradient, as dlbridge does.
"""

from collections.abc import Callable
from typing import Any

from bench.rows import Group, Row

SIZES = 100, 100_000


def carried(dlbridge: Any, to: str, function: Callable[..., Any]) -> Any:
    return dlbridge.accepts(to, returns="like", gradients=True)(function)


def loss_of(library: Any) -> Callable[..., Any]:
    return lambda x, y: (library.sin(x) * y).sum()


def step_of(function: Callable[..., Any]) -> Callable[..., None]:
    return lambda x, y: function(x, y).backward()


def forward_by_hand(torch: Any, jax: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    run = jax.jit(function)

    def forward(*tensors: Any) -> Any:
        return torch.from_dlpack(jax.block_until_ready(run(*map(jax.dlpack.from_dlpack, tensors))))

    return forward


def for_torch_by_hand(torch: Any, jax: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    linearized = jax.jit(lambda *arrays: jax.vjp(function, *arrays))
    pull_back = jax.jit(lambda vjp, cotangent: vjp(cotangent))

    class OfJax(torch.autograd.Function):       # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            result, ctx.vjp = linearized(*[jax.dlpack.from_dlpack(tensor.detach()) for tensor in tensors])
            return torch.from_dlpack(jax.block_until_ready(result))

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            found = pull_back(ctx.vjp, jax.dlpack.from_dlpack(cotangent.contiguous()))
            return tuple(map(torch.from_dlpack, jax.block_until_ready(found)))

    return OfJax.apply      # type: ignore[no-any-return]


def for_jax_by_hand(torch: Any, jax: Any, numpy: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arrays: Any) -> Any:
        with torch.no_grad():
            return numpy.asarray(function(*map(torch.from_dlpack, arrays)))

    def differentiate(cotangent: Any, *arrays: Any) -> Any:
        tensors = [torch.from_dlpack(array).requires_grad_() for array in arrays]
        with torch.enable_grad():
            result = function(*tensors)
        return tuple(map(numpy.asarray, torch.autograd.grad(result, tensors, torch.from_dlpack(cotangent))))

    @jax.custom_vjp
    def call(*arrays: Any) -> Any:
        return jax.pure_callback(run, jax.ShapeDtypeStruct((), "float32"), *arrays)

    def backward(arrays: Any, cotangent: Any) -> Any:
        shapes = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays)
        return jax.pure_callback(differentiate, shapes, cotangent, *arrays)

    call.defvjp(lambda *arrays: (call(*arrays), arrays), backward)
    return call     # type: ignore[no-any-return]


def rows() -> list[Row]:
    made = []
    for size in SIZES:
        wanting, plain, arrays = f"*wanting_{size}", f"*plain_{size}", f"*arrays_{size}"
        made += [
            Row(f"torch trains by JAX, {size} elements", f"step({wanting})", {"by hand": f"step_by_hand({wanting})"},
                share=0.1, pinned=False),
            Row(f"torch calls JAX, {size} elements", f"forward({plain})", {"by hand": f"forward_by_hand_({plain})"},
                share=0.1, pinned=False),
            Row(f"JAX trains by torch, {size} elements", f"jax.block_until_ready(gradient({arrays}))",
                {"by hand": f"jax.block_until_ready(gradient_by_hand({arrays}))"}, share=0.1, pinned=False),
            Row(f"JAX calls torch, {size} elements", f"jax.block_until_ready(call({arrays}))",
                {"by hand": f"jax.block_until_ready(call_by_hand({arrays}))"}, share=0.1, pinned=False),
        ]
    return made


def inputs() -> dict[str, str]:
    made = {
        "step": "step_of(carried(dlbridge, 'jax', loss_of(jax.numpy)))",
        "step_by_hand": "step_of(for_torch_by_hand(torch, jax, loss_of(jax.numpy)))",
        "forward": "carried(dlbridge, 'jax', loss_of(jax.numpy))",
        "forward_by_hand_": "forward_by_hand(torch, jax, loss_of(jax.numpy))",
        "gradient": "jax.jit(jax.value_and_grad(carried(dlbridge, 'torch', loss_of(torch)), (0, 1)))",
        "gradient_by_hand": "jax.jit(jax.value_and_grad(for_jax_by_hand(torch, jax, numpy, loss_of(torch)), (0, 1)))",
        "call": "jax.jit(carried(dlbridge, 'torch', loss_of(torch)))",
        "call_by_hand": "jax.jit(for_jax_by_hand(torch, jax, numpy, loss_of(torch)))",
    }
    for size in SIZES:
        made[f"wanting_{size}"] = f"[torch.ones({size}, requires_grad=True) for _ in range(2)]"
        made[f"plain_{size}"] = f"[torch.ones({size}) for _ in range(2)]"
        made[f"arrays_{size}"] = f"[jax.numpy.ones({size}) for _ in range(2)]"
    return made


GROUP = Group("gradients", tuple(rows()), inputs())
