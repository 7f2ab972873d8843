"""accepts(callback=True): functions of the host that JAX calls back from what it traces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlbridge
from dlbridge.gradients.crossings import VMAP_METHODS

pytestmark = pytest.mark.needs("jax")


def host(function, to="numpy", **keywords):
    return dlbridge.accepts(to, returns="like", callback=True, narrow=True, **keywords)(function)


def sines(x, scale=1.0):
    assert type(x) is np.ndarray
    return np.sin(x) * scale


ARRAY = np.linspace(0, 1, 6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize(("around", "vmap_method"), [
    (lambda f: f, "sequential"), (jax.jit, "sequential"), *((jax.vmap, method) for method in VMAP_METHODS),
    *((lambda f: jax.jit(jax.vmap(f)), method) for method in VMAP_METHODS),
    (lambda f: jax.vmap(jax.jit(f)), "sequential"),
], ids=["alone", "jit", *(f"vmap {each}" for each in VMAP_METHODS),
        *(f"jit(vmap) {each}" for each in VMAP_METHODS), "vmap(jit)"])
def test_it_gives_the_same_wherever_it_is_called(around, vmap_method):
    function = host(sines, vmap_method=vmap_method)
    made = around(lambda x: function(x, scale=2.0) + 1)(jnp.asarray(ARRAY))
    assert isinstance(made, jax.Array)
    np.testing.assert_allclose(made, np.sin(ARRAY) * 2 + 1, rtol=1e-6)


def test_containers_go_in_and_come_out():
    def take(batch, *, more):
        return {"sum": batch["x"] + more[1], "parts": (batch["x"].sum(), 2.5, len(more))}

    function = host(take)
    made = jax.jit(lambda x: function({"x": x, "name": "a"}, more=[1, x * 2]))(jnp.ones(3))
    assert made["sum"].tolist() == [3, 3, 3]
    assert [float(part) for part in made["parts"]] == [3, 2.5, 2]


def test_it_is_called_with_the_values_of_each_call():
    seen = []
    function = jax.jit(host(lambda x: (seen.append(x.tolist()), x)[1]))
    assert [function(jnp.full(1, value)).tolist() for value in (1.0, 2.0)] == [[1], [2]]
    assert seen == [[0], [1], [2]]         # zeros, to see what it gives


def test_the_results_may_be_told_beforehand():
    calls = []

    @dlbridge.accepts("numpy", returns="like", narrow=True,
                      callback=lambda x: (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((), "int32")))
    def inverse(x):
        calls.append(1)
        return np.linalg.inv(x), np.int32(len(x))

    matrix = jnp.asarray([[2.0, 0.0], [0.0, 4.0]])
    made, count = jax.jit(inverse)(matrix)
    assert (made.tolist(), int(count), len(calls)) == ([[0.5, 0], [0, 0.25]], 2, 1)


@pytest.mark.needs("torch")
def test_the_first_array_may_be_one_that_nothing_is_like():
    class Foreign:
        def __dlpack__(self, **keywords):
            return np.ones(2, "f4").__dlpack__(**keywords)

        def __dlpack_device__(self):
            return 1, 0

    both = jax.jit(lambda x: host(lambda y, x: x + y)(Foreign(), x))(jnp.ones(2))
    assert both.tolist() == [2, 2]
    import torch

    function = dlbridge.accepts("jax", returns="like", gradients=True)(lambda y, x: x + y)
    assert function(Foreign(), torch.ones(2)).tolist() == [2, 2]


def test_the_byte_order_and_numbers_need_not_be_foreseen():
    assert jax.jit(host(lambda x: x.astype(">f4")))(jnp.ones(2)).tolist() == [1, 1]
    assert float(jax.jit(host(lambda x: 0.5 if not x.any() else 3))(jnp.ones(2))) == 3


def test_zeros_that_a_function_does_not_take():
    with pytest.raises(dlbridge.UnsupportedError, match=r"with zeros.*LinAlgError.*ShapeDtypeStruct"):
        jax.jit(host(np.linalg.inv))(jnp.eye(2))


def test_methods_and_arrays_of_others():
    class Model:
        factor = 3

        @dlbridge.accepts("numpy", returns="like", callback=True)
        def scaled(self, x):
            return x * np.float32(self.factor)

    assert jax.jit(Model().scaled)(jnp.ones(2)).tolist() == [3, 3]
    assert type(Model().scaled(np.ones(2, "f4"))) is np.ndarray


@pytest.mark.needs("torch")
def test_the_results_are_of_jax_whatever_the_first_array_is():
    import torch

    function = host(lambda y, x: {"x": x * 2, "y": y})
    for first in np.ones(2, "f4"), torch.ones(2):
        made = jax.jit(lambda x, first=first: function(first, x))(jnp.ones(2))
        assert [type(made[key]).__module__.partition(".")[0] for key in "xy"] == ["jaxlib", "jaxlib"]
        assert (made["x"].tolist(), made["y"].tolist()) == ([2, 2], [1, 1])


@pytest.mark.needs("torch")
def test_a_function_of_torch():
    import torch

    assert type(host(torch.sin, "torch")(torch.ones(1))) is torch.Tensor
    np.testing.assert_allclose(jax.jit(host(torch.sin, "torch"))(jnp.ones(2)), np.sin([1, 1]), rtol=1e-6)


def test_types_are_not_narrowed_silently():
    function = dlbridge.accepts("numpy", returns="like", callback=True)(lambda x: x.astype("float64"))
    with pytest.raises(dlbridge.ConversionError, match="float64: would be narrowed silently"):
        jax.jit(function)(jnp.ones(2))


@pytest.mark.parametrize(("function", "callback", "why"), [
    (lambda x: x.astype("i8") * 2**40, True, "result 1099511627776: does not fit into int32"),
    (lambda x: x.astype("f8") * 1e300, True, r"result 1e\+300: does not fit into float32"),
    (lambda x: 2**40 if x.any() else 0, True, "result 1099511627776: does not fit into int32"),
    (lambda x: 0.5 if x.any() else 0, True, "dtype float64: is not int32, as foreseen"),
    (lambda x: x if x.any() else x.astype("i4"), True, "dtype float32: is not int32, as foreseen"),
    (lambda x: x[:1] if x.any() else x, True, r"shape \(1,\): is not \(2,\), as foreseen"),
    (lambda x: np.stack([x, x]) if x.any() else x, True, r"shape \(2, 2\): is not \(2,\), as foreseen"),
    (lambda x: 0.5 if not x.any() else 2**53 + 1, True, "result 9007199254740993: does not fit into float32"),
    (lambda x: (x, x) if x.any() else [x, x], True, "is not of the form"),
    (lambda x: {"b": x, "a": x}, lambda x: (x, x), "is not of the form"),
    (lambda x: x, lambda x: jax.ShapeDtypeStruct(x.shape, "int32"), "dtype float32: is not int32, as foreseen"),
    (lambda x: 0.5 if not x.any() else 2**24 + 1, True, "result 16777217: does not fit into float32"),
    (lambda x: 0.5 if not x.any() else True, True, "dtype bool: is not float32, as foreseen"),
    (lambda x: x if not x.any() else x.astype("i8"), True, "dtype int64: is not float32, as foreseen"),
], ids=range(14))
def test_results_that_are_not_as_they_were_foreseen(function, callback, why):
    function = dlbridge.accepts("numpy", returns="like", callback=callback, narrow=True)(function)
    with pytest.raises(jax.errors.JaxRuntimeError, match=why):
        jax.block_until_ready(jax.jit(function)(jnp.ones(2)))


def test_what_it_cannot_be():
    with pytest.raises(ValueError, match="returns None"):
        dlbridge.accepts("numpy", callback=True)
    with pytest.raises(ValueError, match="gradients"):
        dlbridge.accepts("torch", returns="like", callback=True, gradients=True)
    with pytest.raises(TypeError, match="callback 3: is neither"):
        dlbridge.accepts("numpy", returns="like", callback=3)
    with pytest.raises(ValueError, match="vmap_method 'one'"):
        dlbridge.accepts("numpy", returns="like", callback=True, vmap_method="one")
    with pytest.raises(TypeError, match="coroutine"):
        @dlbridge.accepts("numpy", returns="like", callback=True)
        async def later(x):
            return x
    with pytest.raises(dlbridge.UnsupportedError, match=r"of type .*str.*is no array"):
        jax.jit(host(lambda x: "text"))(jnp.ones(1))


    with pytest.raises(dlbridge.UnsupportedError, match=r"key_data\(x\)"):
        jax.jit(host(lambda key: 1.0))(jax.random.key(3))
    with pytest.raises(dlbridge.ConversionError, match=r"1099511627776.*x64"):
        jax.jit(host(lambda x: 2 ** 40))(jnp.ones(1))
    with pytest.raises(TypeError, match=r"'float32': is no jax.ShapeDtypeStruct"):
        jax.jit(dlbridge.accepts("numpy", returns="like", callback=lambda x: "float32")(np.sin))(jnp.ones(1))


@pytest.mark.parametrize("method", ["expand_dims", "broadcast_all"])
@pytest.mark.parametrize(
    "function", [lambda x: 0.5, lambda x: x.sum(), lambda x: x.sum(axis=-1)[:2] if x.ndim > 1 else x.sum()])
def test_each_of_a_batch_has_a_result(function, method):
    with pytest.raises(jax.errors.JaxRuntimeError, match=r'is not \(3,\), as foreseen \(.*vmap_method="sequential"\)'):
        jax.block_until_ready(jax.vmap(host(function, vmap_method=method))(jnp.ones((3, 2))))
    assert jax.vmap(host(lambda x: 0.5))(jnp.ones((3, 2))).tolist() == [0.5] * 3


def test_the_error_of_a_call_names_the_parameter():
    function = dlbridge.accepts("numpy", returns="like", callback=True, others="raise")(lambda x, some: x)
    with pytest.raises(dlbridge.UnsupportedError, match=r"<lambda>\(some\): "):
        jax.jit(lambda x: function(x, "text"))(jnp.ones(2))


def test_the_hint_of_an_error_works():
    """It says what this file is about."""
    with pytest.raises(dlbridge.UnsupportedError, match=r'callback=True and returns="like" to dlbridge.accepts'):
        jax.jit(dlbridge.accepts("numpy")(np.sin))(jnp.ones(2))
    with pytest.raises(dlbridge.UnsupportedError, match=r'accepts\("numpy", returns="like", callback=True\)'):
        jax.jit(lambda x: dlbridge.convert(x, "numpy"))(jnp.ones(2))
