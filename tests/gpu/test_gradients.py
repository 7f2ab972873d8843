"""Gradients across libraries, of memory of the device: values, devices, and who waits for whom."""

import pytest

import dlbridge

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
SIZE = 1_000_000


@pytest.fixture
def torch(library):
    library("jax"), library("torch")
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch: finds no GPU")      # on the fake driver
    return torch


def test_torch_differentiates_a_function_of_jax(torch):
    import jax.numpy as jnp

    call = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: jnp.sin(x) * 2)
    x = torch.linspace(0, 1, SIZE, device=DEVICE).requires_grad_()
    for _ in range(10):
        result = call(x)
        cotangent = torch.ones_like(result)
        gradient, = torch.autograd.grad(result, x, cotangent, retain_graph=True)
        cotangent.zero_()           # it was read
        assert torch.allclose(gradient, 2 * x.cos())
        gradient, = torch.autograd.grad(result.sum(), x, create_graph=True)
        assert result.device == gradient.device == x.device
        assert torch.allclose(gradient, 2 * x.cos())
        second, = torch.autograd.grad(gradient.sum(), x)
        assert torch.allclose(second, -2 * x.sin())


def test_the_memory_of_an_argument_may_be_written_right_after_the_call(torch):
    import jax.numpy as jnp

    call = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: jnp.sqrt(x * x).sum())
    for _ in range(10):
        x = torch.full((SIZE,), 1.5, device=DEVICE)
        result = call(x)
        x.zero_()
        assert abs(result.item() / SIZE - 1.5) < 1e-3


def test_arguments_and_cotangents_in_any_layout(torch):
    """The cotangent of a sum repeats one element; JAX takes no strides."""
    import jax.numpy as jnp

    call = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: jnp.sin(x) * 2)
    base = torch.linspace(0, 1, 48, device=DEVICE).reshape(6, 8)
    for view in base, base.T, base[:, ::2], base[:1].expand(5, 8), base[1:, 1:], base[0, 0]:
        x = view.detach().requires_grad_()
        call(x).sum().backward()
        assert torch.allclose(x.grad, 2 * x.detach().cos())


def test_jax_differentiates_a_function_of_torch(torch):
    import jax
    import jax.numpy as jnp

    call = dlbridge.accepts("torch", returns="like", gradients=True, device=DEVICE)(lambda x: (x.sin() * 2).sum())
    x = jax.device_put(jnp.linspace(0, 1, SIZE), jax.devices(DEVICE)[0])
    for way in jax.grad(call), jax.jit(jax.grad(call)), lambda x: jax.vmap(jax.grad(call))(x[None])[0]:
        gradient = way(x)
        assert gradient.devices() == x.devices()
        assert jnp.allclose(gradient, 2 * jnp.cos(x), atol=1e-5)
