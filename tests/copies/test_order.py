"""order="C": compact memory in C order, shared where it is that already; for convert() and for trees."""

import numpy as np
import pytest
from support.optional import params
from support.strided import LAYOUTS

import dlbridge

TARGETS = params(["numpy", "torch", "jax", "memoryview", "dlbridge", "dlpack", "pyarrow", "array_api_strict"])
SHARE = {"readonly": "share"}


def seen(made):
    return np.asarray(dlbridge.convert(made, "numpy", readonly="share"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout, target):
    source = LAYOUTS[layout]("float32")
    if target == "pyarrow" and source.ndim != 1:
        pytest.skip("its arrays have one axis")
    array = seen(dlbridge.convert(source, target, order="C", **SHARE))
    assert array.flags.c_contiguous
    assert array.tobytes() == source.tobytes()
    plan, otherwise = dlbridge.explain(source, target, order="C", **SHARE), dlbridge.explain(source, target, **SHARE)
    if source.flags.c_contiguous:
        assert plan.action == otherwise.action
        assert not source.size or plan.action == "copy" or array.ctypes.data == source.ctypes.data
    else:
        assert plan.action == "copy"
        assert otherwise.action == "copy" or (plan.hint == "pass order=None" and 'order="C" asks for' in plan.reason)
        with pytest.raises(dlbridge.CopyRequiredError, match=r"pass copy=None\)$"):
            dlbridge.convert(source, target, order="C", copy=False, **SHARE)


@pytest.mark.parametrize("target", params(["numpy", "torch", "dlbridge", "array_api_strict"]))
def test_an_array_of_the_targets_own(target):
    compact = dlbridge.convert(np.arange(6.0).reshape(2, 3), target, order="C")
    turned = dlbridge.convert(np.arange(6.0).reshape(3, 2).T, target)
    assert dlbridge.convert(compact, target, order="C") is compact
    assert dlbridge.convert(compact, target, order="C", copy=True) is not compact
    assert [dlbridge.explain(each, target, order="C").action for each in (compact, turned)] == ["return", "copy"]
    for copy in None, True:
        made = dlbridge.convert(turned, target, order="C", copy=copy)
        assert type(made) is type(turned)
        assert seen(made).flags.c_contiguous
        assert seen(made).tolist() == seen(turned).tolist()


def test_strides_that_mean_nothing_are_no_reason_to_copy():
    one = np.lib.stride_tricks.as_strided(np.zeros(9), (1, 3), (40, 8))
    for source in one, np.zeros((0, 3))[:, ::2], np.zeros(()), one.T:
        assert source.flags.c_contiguous
        assert dlbridge.convert(source, "numpy", order="C") is source


@pytest.mark.needs("torch")
def test_trees_and_functions_and_batches():
    turned, compact = np.arange(6.0).reshape(3, 2).T, np.ones((2, 3))
    tree = dlbridge.convert_tree({"a": turned, "b": [compact]}, "torch", order="C")
    assert tree["a"].is_contiguous()
    assert tree["b"][0].data_ptr() == compact.ctypes.data
    assert dlbridge.accepts("torch", order="C")(lambda x: x.stride())(turned) == (3, 1)
    like = dlbridge.accepts("torch", returns="like", order="C")(lambda x: x.T)
    assert like(compact).flags.c_contiguous
    (batch,) = dlbridge.prefetch([[turned, tree["a"].T]], "torch", order="C")
    assert [each.is_contiguous() for each in batch] == [True, True]
    assert dlbridge.explain([turned], "torch", order="C").leaves["[0]"].action == "copy"
    with pytest.raises(dlbridge.CopyRequiredError, match=r"x.*pass order=None to dlbridge.accepts"):
        dlbridge.accepts("torch", order="C", copy=False)(lambda x: x)(turned)


@pytest.mark.needs("torch")
def test_a_tensor_that_requires_a_gradient():
    import torch

    compact = torch.ones(2, 3, requires_grad=True)
    assert dlbridge.convert(compact, "torch", order="C") is compact
    with pytest.raises(dlbridge.ConversionError, match="requires_grad"):
        dlbridge.convert(compact.T, "torch", order="C")
    assert dlbridge.convert(compact.T, "torch", order="C", detach=True).is_contiguous()


def test_out_is_as_it_is():
    source, turned, compact = np.arange(6.0).reshape(3, 2).T, np.zeros((3, 2)).T, np.zeros((2, 3))
    assert dlbridge.convert(source, "numpy", order="C", out=compact) is compact
    assert compact.tolist() == source.tolist()
    assert dlbridge.explain(source, "numpy", order="C", out=turned).action == "refuse"
    with pytest.raises(dlbridge.ConversionError, match=r"out of strides \(1, 2\).*leave out order="):
        dlbridge.convert(source, "numpy", order="C", out=turned)
    assert not turned.any()


@pytest.mark.parametrize("order", ["F", "c", "A", b"C", 3, True, np.array(["C", "C"])])
@pytest.mark.parametrize("function", [dlbridge.convert, dlbridge.explain, dlbridge.convert_tree])
def test_other_orders(function, order):
    with pytest.raises(ValueError, match=r"^convert: order .*: is neither None nor \"C\" \(.+\)$"):
        function([], "numpy", order=order)


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("dtype", [">f4", "?", "int4", "bfloat16"])
def test_other_elements(dtype):
    import ml_dtypes

    source = np.ones((3, 4)).astype(getattr(ml_dtypes, dtype, dtype)).T
    assert dlbridge.convert(source, "dlbridge", order="C").strides == (3, 1)


@pytest.mark.needs("torch")
def test_lazy_bits_are_not_the_elements():
    import torch

    for source in torch.tensor([1 + 2j]).conj(), torch.tensor([[1 + 2j]]).conj().T, torch.tensor([1j]).conj().imag:
        made = dlbridge.convert(source, "torch", order="C")
        assert (made.is_conj(), made.is_neg()) == (False, False)
        assert made.tolist() == source.tolist()
        assert dlbridge.explain(source, "torch", order="C").action == "copy"


@pytest.mark.needs("jax")
def test_arrays_of_jax_have_no_strides():
    import jax

    numbers = jax.numpy.arange(4, dtype="int4")
    assert dlbridge.convert(numbers, "jax", order="C") is numbers
    traced = dlbridge.accepts("jax", order="C")(lambda x: x * 2)
    assert jax.jit(traced)(jax.numpy.ones(2)).tolist() == [2, 2]
