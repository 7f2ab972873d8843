"""narrow=True: the target's nearest type where it lacks a wide one, and every value checked."""

import jax
import numpy as np
import pytest
import torch
from dlbridge._core.copying import _set_split
from support.optional import of, params

import dlbridge
from dlbridge.libraries.library import TooWide
from dlbridge.libraries.torch import rearranged

pytestmark = pytest.mark.quick

WIDE = {"float64": "float32", "complex128": "complex64", "int64": "int32"}
each_type = pytest.mark.parametrize(("wide", "narrow"), WIDE.items(), ids=WIDE)


@pytest.mark.needs("jax")
@each_type
def test_a_wide_type_becomes_the_nearest_one(wide, narrow):
    source = np.arange(12, dtype=wide).reshape(3, 4)
    result = dlbridge.convert(source, "jax", narrow=True)
    assert result.dtype.name == narrow
    assert np.array_equal(np.asarray(result), source)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("make", params({
    "tensor": of("torch")(lambda array: torch.from_numpy(array)),
    "negated": of("torch")(lambda array: torch._neg_view(torch.from_numpy(-array))),
    "buffer": memoryview,
    "Tensor": dlbridge.asdlpack,
    "big-endian": lambda array: array.astype(">f8"),
    "reversed": lambda array: array[::-1].copy()[::-1],
    "every second": lambda array: np.repeat(array, 2)[::2],
}))
def test_from_any_source(make):
    expected = np.arange(5.0)
    result = dlbridge.convert(make(expected), "jax", narrow=True)
    assert (result.dtype.name, result.tolist()) == ("float32", expected.tolist())


@pytest.mark.needs("jax")
@pytest.mark.parametrize("way", [
    lambda source: dlbridge.convert_tree({"x": source}, "jax", narrow=True)["x"],
    lambda source: dlbridge.accepts("jax", narrow=True)(lambda x: x)(source),
], ids=["convert_tree", "accepts"])
def test_in_batches_and_functions(way):
    assert way(np.arange(3)).dtype.name == "int32"


@pytest.mark.needs("jax")
@pytest.mark.parametrize(("values", "first"), [
    ([1, 2**31, 2**40], "2147483648 at (1,)"), ([-2**31 - 1], "-2147483649 at (0,)"), ([0.5, 1e300], "1e+300 at (1,)"),
    ([[0j], [1e300j]], "1e+300j at (1, 0)")])
def test_a_value_that_does_not_fit_is_named(values, first):
    with pytest.raises(dlbridge.ConversionError, match=r"^narrow: value .* does not fit into") as caught:
        dlbridge.convert(np.array(values), "jax", narrow=True)
    assert first in str(caught.value)


@pytest.mark.needs("jax")
def test_what_is_not_finite_stays_so():
    source = np.array([np.nan, np.inf, -np.inf, -0.0])
    result = np.asarray(dlbridge.convert(source, "jax", narrow=True))
    assert np.array_equal(result, source.astype("f4"), equal_nan=True)
    assert np.signbit(result[3])


@pytest.mark.needs("jax")
def test_only_where_it_is_asked_for():
    with pytest.raises(dlbridge.ConversionError, match="jax_enable_x64"):
        dlbridge.convert(np.zeros(3), "jax")


@pytest.mark.needs("jax")
def test_never_another_type():
    with pytest.raises(dlbridge.ConversionError, match="uint64"):
        dlbridge.convert(np.zeros(3, "uint64"), "jax", narrow=True)


@pytest.mark.parametrize("target", params(["numpy", "torch", "memoryview", "dlbridge"]))
@each_type
def test_a_target_that_has_the_type_gets_it(wide, narrow, target):
    source = np.zeros(3, wide)
    assert dlbridge.asdlpack(dlbridge.convert(source, target, narrow=True, copy=False)).data_ptr == source.ctypes.data


@pytest.mark.needs("jax")
def test_jax_with_x64_has_the_type():
    jax.config.update("jax_enable_x64", True)
    try:
        assert dlbridge.convert(np.zeros(3), "jax", narrow=True).dtype == "float64"
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.needs("jax")
def test_it_is_a_copy_that_explain_announces():
    source = np.zeros((2, 3))
    plan = dlbridge.explain(source, "jax", narrow=True)
    assert (plan.action, plan.dtype) == ("copy", "float64")
    assert plan.reason == "dtype float64 becomes float32, the nearest type that jax has"
    with pytest.raises(dlbridge.CopyRequiredError, match=r"float64 becomes float32, .*: needs a copy"):
        dlbridge.convert(source, "jax", narrow=True, copy=False)
    assert dlbridge.explain(source, "jax", narrow=True, copy=False).action == "refuse"


@pytest.mark.needs("jax")
@pytest.mark.parametrize(("wide", "narrow"), [("float64", "float32"), ("complex128", "complex64"), ("int64", "int32")])
@pytest.mark.parametrize("turned", [
    lambda x: x.T, lambda x: x.transpose(1, 0, 2), lambda x: x[::-1, :, ::2], lambda x: x[..., 0],
    lambda x: np.broadcast_to(x[:1], (3, *x.shape[1:])), lambda x: x[:0].T])
def test_a_copy_keeps_the_order_of_the_axes(wide, narrow, turned):
    source = turned(np.arange(60).reshape(3, 4, 5).astype(wide))
    made = dlbridge.convert(source, "jax", narrow=True)
    assert (made.dtype, made.shape) == (narrow, source.shape)
    assert np.array_equal(np.asarray(made), source)


@pytest.mark.needs("jax")
@pytest.mark.parametrize(("dtype", "value"), [("int64", 2**40), ("float64", 1e300)])
def test_a_value_that_does_not_fit_is_named_by_its_place_in_the_source(dtype, value):
    source = np.zeros((2, 3, 4), dtype)
    source[1, 2, 3] = value
    with pytest.raises(dlbridge.ConversionError, match=r"at \(3, 1, 2\)"):
        dlbridge.convert(source.transpose(2, 0, 1), "jax", narrow=True)

LARGEST = float(np.finfo("f4").max)
HALFWAY = LARGEST + 2.0**103              # to what would be the next float: it rounds to infinity
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, LARGEST, -LARGEST, np.nextafter(HALFWAY, 0), 1e-45, 1e-46, 5e-324, 1 / 3]
LAYOUTS = {
    "side by side": lambda x: x, "every second": lambda x: np.repeat(x, 2)[::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "at odd addresses": lambda x: np.frombuffer(b"." + x.tobytes(), x.dtype, len(x), 1),
    "the other byte order": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "across": lambda x: np.repeat(x, 3).reshape(-1, 3).T[1],
}


@pytest.fixture
def in_parts():
    before = _set_split(1 << 9, 1 << 8)
    yield
    _set_split(*before)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 127, 128, 129, 300, 5000])
@each_type
def test_every_value_is_that_of_a_cast(in_parts, wide, narrow, size, layout):
    random = np.random.default_rng(size)
    if wide == "int64":
        values = random.integers(-2**31, 2**31, size)
        values[:2] = [2**31 - 1, -2**31][:size]
    else:
        values = random.standard_normal(2 * size) * 10.0**random.integers(-50, 38, 2 * size)
        values[random.integers(0, 2 * size, size)] = random.choice(SPECIAL, size)
        values = values.view(wide)[:size]
    with np.errstate(all="ignore"):
        expected = values.astype(narrow)
    made = np.asarray(dlbridge.convert(LAYOUTS[layout](values), "jax", narrow=True))
    assert made.dtype == narrow
    assert made.tobytes() == expected.tobytes()


@pytest.mark.needs("jax")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("place", [0, 127, 128, 4999])
@pytest.mark.parametrize("value", [np.int64(2**31), np.int64(-2**31 - 1), np.int64(-2**63), HALFWAY, -HALFWAY, 1e308,
                                   complex(0, HALFWAY), complex(-HALFWAY, np.nan)])
def test_one_value_that_does_not_fit_is_found_anywhere(in_parts, value, place, layout):
    values = np.zeros(5000, type(value))
    values[place] = value
    with pytest.raises(dlbridge.ConversionError, match=rf"at \({place},\): does not fit"):
        dlbridge.convert(LAYOUTS[layout](values), "jax", narrow=True)


@pytest.mark.needs("torch")
def test_the_kernels_of_torch_look_at_each_part_too():
    sound = torch.tensor([complex(np.inf, np.nan), 1 + 2j])
    assert rearranged(sound.to(torch.complex128), "complex64").dtype == torch.complex64
    for value in complex(np.inf, 1e300), complex(-1e300, np.nan), complex(0, HALFWAY):
        with pytest.raises(TooWide):
            rearranged(torch.tensor([1j, value], dtype=torch.complex128), "complex64")
