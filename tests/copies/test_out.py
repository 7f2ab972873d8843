"""out=: the copy goes into an array that is there already."""

import numpy as np
import pytest
import torch
from support.children import each_in_one_child
from support.hints import code_in
from support.optional import of, params

import dlbridge

pytestmark = pytest.mark.quick

SOURCE = np.arange(6, dtype="f4").reshape(2, 3)


def fields():
    return np.zeros((2, 3), [("a", "u1"), ("x", "f4")])["x"]


OUTS = {
    "compact": lambda: np.zeros((2, 3), "f4"),
    "transposed": lambda: np.zeros((3, 2), "f4").T,
    "backwards": lambda: np.zeros((4, 6), "f4")[::-2, ::2],
    "big-endian": lambda: np.zeros((2, 3), ">f4"),
    "a field": fields,
}
SOURCES = {
    "compact": lambda: SOURCE,
    "transposed": lambda: SOURCE.T.copy().T,
    "backwards": lambda: SOURCE[::-1, ::-1].copy()[::-1, ::-1],
    "big-endian": lambda: SOURCE.astype(">f4"),
    "torch": of("torch")(lambda: torch.from_numpy(SOURCE.copy())),
    "negative": of("torch")(lambda: torch.view_as_complex(torch.stack(
        [torch.zeros(2, 3), torch.from_numpy(SOURCE)], -1)).conj().imag.neg()),
}


@pytest.mark.parametrize("make", OUTS.values(), ids=OUTS)
@pytest.mark.parametrize("source", params(SOURCES.values()), ids=SOURCES)
def test_any_layout_takes_a_copy(source, make):
    out = make()
    assert dlbridge.convert(source(), "numpy", out=out) is out
    assert out.tolist() == SOURCE.tolist()


@pytest.mark.parametrize("make", params([
    lambda: np.zeros((2, 3), "f4"), of("torch")(lambda: torch.zeros(2, 3)), of("torch")(lambda: torch.zeros(3, 2).T),
    lambda: memoryview(np.zeros((2, 3), "f4")), lambda: dlbridge.asdlpack(np.zeros((2, 3), "f4"))]))
def test_each_library_has_its_own(make):
    out = make()
    assert dlbridge.convert(SOURCE, out, out=out) is out
    assert np.asarray(out).tolist() == SOURCE.tolist()


def test_only_its_elements_are_written():
    whole = np.full((4, 6), 7, "f4")
    dlbridge.convert(SOURCE, "numpy", out=whole[::2, ::2])
    whole[::2, ::2] = 7
    assert (whole == 7).all()


@pytest.mark.parametrize(("source", "out"), [
    (slice(0, 8), slice(2, 10)), (slice(2, 10), slice(0, 8)), (slice(None), slice(None, None, -1)),
    (slice(0, 8, 2), slice(1, 5)), (slice(0, 4), slice(0, 4))])
def test_memory_may_overlap(source, out):
    expected = np.arange(10.0)
    expected[out] = expected[source].copy()
    array = np.arange(10.0)
    dlbridge.convert(array[source], "numpy", out=array[out])
    assert array.tolist() == expected.tolist()


def test_into_itself_nothing_happens():
    array = np.arange(3.0)
    assert dlbridge.convert(array, "numpy", out=array) is array
    assert array.tolist() == [0, 1, 2]
    assert dlbridge.explain(array, "numpy", out=array).action == "return"


@pytest.mark.needs("torch")
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("make", "letter"), [
    (lambda numbers: numbers.conj(), "c8"), (lambda numbers: torch._neg_view(numbers), "c8"),
    (lambda numbers: torch._neg_view(numbers.conj()), "c8"), (lambda numbers: numbers.conj().imag, "f4"),
    (lambda numbers: torch._neg_view(numbers.real.to(torch.bfloat16).float()), "f4")])
def test_lazy_signs_are_resolved_in_either_byte_order(make, letter, order):
    source = make(torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64))
    out = np.zeros(2, order + letter)
    dlbridge.convert(source, "numpy", out=out)
    assert out.tolist() == source.resolve_conj().resolve_neg().tolist()


def test_no_elements_share_nothing():
    out = np.ndarray((0, 3), "f4", bytearray(100), 0, (13, 5))
    assert dlbridge.convert(np.zeros((0, 3), "f4"), "numpy", out=out) is out


def test_bools_are_made_0_and_1():
    out = np.zeros(2, "?")
    dlbridge.convert(np.array([2, 0], "u1").view("?"), "numpy", out=out)
    assert out.view("u1").tolist() == [1, 0]


def test_with_other_keywords():
    out = np.zeros((2, 3), "f4")
    dlbridge.convert(SOURCE.tobytes(), "numpy", dtype="float32", shape=(2, 3), device="cpu", out=out)
    assert out.tolist() == SOURCE.tolist()


@pytest.mark.needs("torch")
def test_a_gradient_needs_what_was_written_over():
    weights, needed = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = (weights * needed).sum()
    dlbridge.convert(np.zeros(3, "f4"), "torch", out=needed)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_source_is_released():
    source = bytearray(4)
    dlbridge.convert(source, "numpy", out=np.zeros(4, "u1"))
    with pytest.raises(dlbridge.ConversionError):
        dlbridge.convert(source, "numpy", out=np.zeros(5, "u1"))
    source.append(0)


def read_only():
    array = np.zeros((2, 3), "f4")
    array.flags.writeable = False
    return array


REFUSED = (
    (lambda: np.zeros((2, 3)), {}, "out of float64: is not of the source's dtype, float32"),
    (lambda: np.zeros((3, 2), "f4"), {}, r"out of shape \(3, 2\): is not of the source's shape, \(2, 3\)"),
    (lambda: np.zeros((1, 2, 3), "f4"), {}, r"is not of the source's shape, \(2, 3\)"),
    (lambda: [1, 2], {}, "out of type builtins.list: is no array of numpy"),
    (lambda: memoryview(bytearray(24)), {}, "is no array of numpy"),
    (read_only, {}, "out of type numpy.ndarray: cannot take a copy: it is read-only"),
    (lambda: np.lib.stride_tricks.as_strided(np.zeros(3, "f4"), (2, 3), (0, 4)), {}, "elements may share memory"),
    (lambda: np.lib.stride_tricks.as_strided(np.zeros(4, "f4"), (2, 3), (4, 4)), {}, "elements may share memory"),
    (lambda: np.ma.masked_array(np.zeros((2, 3), "f4"), mask=np.eye(2, 3)), {}, "cannot take a copy: .*mask"),
    (lambda: np.zeros((2, 3), "f4"), {"copy": False}, "copy False: but out takes a copy"),
    (lambda: np.zeros((2, 3), "f4"), {"device": "cuda"}, r"out on cpu: is not on cuda \(leave out device=\)"),
)


@pytest.mark.parametrize(("make", "keywords", "said"), REFUSED)
def test_what_is_refused(make, keywords, said):
    out = make()
    with pytest.raises(dlbridge.DLBridgeError, match=f"^convert: .*{said}") as caught:
        dlbridge.convert(SOURCE, "numpy", out=out, **keywords)
    plan = dlbridge.explain(SOURCE, "numpy", out=out, **keywords)
    assert (plan.action, plan.reason, plan.hint) == ("refuse", caught.value.reason, caught.value.hint)
    if isinstance(out, np.ndarray):
        assert not np.ma.getdata(out).any()


@pytest.mark.needs("torch")
def test_a_tensor_that_requires_a_gradient_is_refused():
    out = torch.zeros(2, 3, requires_grad=True)
    with pytest.raises(dlbridge.ConversionError, match=r"out of type torch\.Tensor: .*requires_grad") as caught:
        dlbridge.convert(SOURCE, "torch", out=out)
    (code,) = code_in(caught.value.hint, {"x": out})
    dlbridge.convert(SOURCE, "torch", out=eval(code, {"x": out}))
    assert np.array_equal(out.detach(), SOURCE)


class Calling:
    """A producer that calls something while it is asked for its memory, and then has ones."""

    def __init__(self, shape, call):
        self.array, self.call = np.ones(shape, "u1"), call

    def __dlpack__(self, **keywords):
        self.call()
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return 1, 0


MEGABYTES = 1 << 25         # as much is unmapped when it is released


def moved():
    out = torch.zeros(MEGABYTES, dtype=torch.uint8)
    dlbridge.convert(Calling(MEGABYTES, out.share_memory_), "torch", out=out)
    return bool(out.all())


def resized():
    out = np.zeros(MEGABYTES, "u1")
    with pytest.raises(dlbridge.ConversionError, match="is not of the source's shape"):
        dlbridge.convert(Calling(MEGABYTES, lambda: out.resize(16, refcheck=False)), "numpy", out=out)
    return True


@pytest.mark.needs("torch")
def test_out_is_looked_at_after_what_the_source_calls():
    assert each_in_one_child(lambda case: case(), {"moved": (moved,), "resized": (resized,)}) == {
        "moved": True, "resized": True}


@pytest.mark.filterwarnings("ignore:Setting the (shape|dtype) on a NumPy array")
@pytest.mark.parametrize(("change", "said"), [
    (lambda out: setattr(out, "shape", (3, 2)), "is not of the source's shape"),
    (lambda out: out.setflags(write=False), "it is read-only"),
    (lambda out: setattr(out, "dtype", "i1"), "is not of the source's dtype"),
])
def test_a_source_that_changes_out(change, said):
    out = np.zeros((2, 3), "u1")
    with pytest.raises(dlbridge.ConversionError, match=said):
        dlbridge.convert(Calling((2, 3), lambda: change(out)), "numpy", out=out)
    assert not out.any()


def test_a_target_without_arrays_takes_none():
    for to in "dlpack", type("Space", (), {"from_dlpack": np.from_dlpack}):
        with pytest.raises(dlbridge.UnsupportedError, match=r"is not taken by .* \(leave out out=\)"):
            dlbridge.convert(SOURCE, to, out=np.zeros((2, 3), "f4"))


@pytest.mark.needs("ml_dtypes")
def test_elements_below_a_byte_of_another_form_are_refused():
    out = dlbridge.convert(b"\0\0", "numpy", dtype="int4")
    with pytest.raises(dlbridge.ConversionError, match="below a byte in another form"):
        dlbridge.convert(b"\x21\x43", "numpy", dtype="int4", out=out)


@pytest.mark.needs("jax")
def test_an_array_that_never_changes_is_refused():
    import jax

    with pytest.raises(dlbridge.ConversionError, match=r"arrays of jax do not change \(leave out out=\)"):
        dlbridge.convert(SOURCE, "jax", out=jax.numpy.zeros((2, 3)))


def test_the_plan_is_a_copy():
    plan = dlbridge.explain(SOURCE, "numpy", out=np.zeros((2, 3), "f4"))
    assert (plan.action, plan.reason, plan.shape) == ("copy", "out takes a copy", (2, 3))
