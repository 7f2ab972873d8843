"""explain() says what convert() does, and does nothing."""


import jax.numpy
import ml_dtypes
import numpy as np
import PIL.Image
import pytest
import torch
from support.child import run_in_child
from support.children import in_child
from support.optional import of, params

import dlbridge
from dlbridge.testing.producers import Producer


def aligned(count, dtype="f4"):
    """Memory that JAX can share."""
    memory = np.empty(count * np.dtype(dtype).itemsize + 64, "u1")
    start = -memory.ctypes.data % 64
    return memory[start:start + count * np.dtype(dtype).itemsize].view(dtype)


def read_only(array):
    array.flags.writeable = False
    return array


# source, target, keywords, action, a word of the reason
CASES = {
    "writable array": (lambda: np.zeros((2, 3), "f4"), "torch", {}, "share", ""),
    "own type": (lambda: np.zeros(3), "numpy", {}, "return", "own type"),
    "backwards": (lambda: np.zeros((2, 3))[::-1], "torch", {}, "copy", "backwards"),
    "backwards, numpy": (of("torch")(lambda: torch.zeros(3)), "numpy", {}, "share", ""),
    "asked for": (lambda: np.zeros(3), "torch", {"copy": True}, "copy", "asked for"),
    "byte order": (lambda: np.zeros(3, ">f4"), "torch", {}, "copy", "byte order"),
    "odd strides": (lambda: np.zeros(3, [("a", "i1"), ("b", "f4")])["b"], "torch", {}, "copy", "item size"),
    "bytes": (lambda: b"abc", "torch", {}, "copy", "readonly"),
    "bytes, shared": (lambda: b"abc", "torch", {"readonly": "share"}, "share", ""),
    "bytes, error": (lambda: b"abc", "torch", {"readonly": "error"}, "refuse", "read-only"),
    "bytes, numpy": (lambda: b"abc", "numpy", {}, "share", ""),
    "lazy bits": (of("torch")(lambda: torch.zeros(3, dtype=torch.complex64).conj()), "numpy", {}, "copy", "conjugate"),
    "gradient": (of("torch")(lambda: torch.zeros(3, requires_grad=True)), "numpy", {}, "refuse", "requires_grad"),
    "gradient, detached": (of("torch")(lambda: torch.zeros(3, requires_grad=True)), "numpy", {"detach": True},
                           "share", ""),
    "holes": (lambda: aligned(12).reshape(3, 4)[:, ::2], "jax", {}, "copy", "holes"),
    "aligned": (lambda: aligned(12), "jax", {"readonly": "share"}, "share", ""),
    "misaligned": (lambda: aligned(12)[1:], "jax", {"readonly": "share"}, "copy", "aligned to 64"),
    "writable": (lambda: aligned(12), "jax", {}, "copy", "must not change"),
    "writable, misaligned": (lambda: aligned(12)[1:], "jax", {}, "copy", "must not change"),
    "writable, error": (lambda: aligned(12), "jax", {"readonly": "error"}, "refuse", "must not change"),
    "too wide": (lambda: np.zeros(3), "jax", {}, "refuse", "jax_enable_x64"),
    "another form": (of("ml_dtypes")(lambda: np.zeros(4, ml_dtypes.float4_e2m1fn)), "torch", {},
                     "copy", "another place"),
    "a list": (lambda: [1], "torch", {}, "refuse", "list"),
    "no such target": (lambda: np.zeros(3), "turch", {}, "refuse", "turch"),
    "forbidden copy": (lambda: np.zeros(3)[::-1], "torch", {"copy": False}, "refuse", "copy=False"),
    "elsewhere": (lambda: np.zeros(3), "torch", {"device": "rocm"}, "refuse", "rocm"),
}


def address_of(array):
    """Where an array of any of the libraries here has its memory."""
    return dlbridge.asdlpack(array, detach=True).data_ptr


@pytest.mark.parametrize(("make", "to", "keywords", "action", "reason"), params(CASES))
def test_plan_says_what_happens(make, to, keywords, action, reason):
    source = make()
    plan = dlbridge.explain(source, to, **keywords)
    assert plan.action == action
    assert reason in plan.reason
    assert bool(plan.reason) == (action != "share")
    if action == "refuse":
        with pytest.raises(dlbridge.DLBridgeError) as caught:
            dlbridge.convert(source, to, **keywords)
        assert f"{plan.reason} ({plan.hint})" == str(caught.value)
        return
    result = dlbridge.convert(source, to, **keywords)
    assert (result is source) == (action == "return")
    if "lazy" not in reason:
        assert (address_of(result) == address_of(source)) == (action in ("share", "return"))


@pytest.mark.needs("torch")
def test_plan_reads_as_text():
    plan = dlbridge.explain(np.zeros((2, 3), ">f4"), "torch")
    lines = str(plan).split("\n")
    assert lines[0] == "numpy.ndarray -> torch: copy"
    words = (
        "by numpy", "float32 (2, 3), 24 bytes, writable, on cpu", "(3, 1) in elements", "byte order", "newbyteorder",
        "copy (dlbridge)",
    )
    for word in words:
        assert sum(word in line for line in lines) == 1


@pytest.mark.needs("torch")
def test_capsule_is_looked_at_and_not_consumed():
    capsule = np.arange(3).__dlpack__()
    for _ in range(2):
        assert dlbridge.explain(capsule, "torch").action == "share"
    assert '"dltensor"' in repr(capsule)
    assert dlbridge.convert(capsule, "torch").tolist() == [0, 1, 2]
    assert dlbridge.explain(capsule, "torch").reason.endswith("was consumed already")


@pytest.mark.needs("torch")
def test_nothing_is_copied():
    # 1 PiB of zeros in one row: a copy would end the test.
    source = np.broadcast_to(np.zeros(1), (1 << 47,))
    assert dlbridge.explain(source, "torch", copy=True).action == "copy"


@pytest.mark.needs("torch", "jax")
def test_jax_array_is_not_changed():
    source = jax.numpy.arange(3)
    assert dlbridge.explain(source, "torch", readonly="share").action == "share"
    assert dlbridge.explain(source, "torch").readonly


def test_errors_of_a_producer_pass_through():
    class Broken:
        def __dlpack__(self, *, max_version=None):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        dlbridge.explain(Broken(), "numpy")


@pytest.mark.needs("torch")
def test_lazy_bits_of_a_subclass():
    class Subclass(torch.Tensor):
        pass

    lazy = torch.view_as_complex(torch.randn(4, 2)).conj()
    for source in (lazy.as_subclass(Subclass), lazy.imag.as_subclass(Subclass)):
        assert dlbridge.explain(source, "numpy").action == "copy"
        assert dlbridge.explain(source, "numpy", copy=False).action == "refuse"
        assert np.array_equal(dlbridge.convert(source, "numpy"), source.resolve_conj().resolve_neg().numpy())


@pytest.mark.needs("torch", "ml_dtypes")
@in_child
def test_missing_ml_dtypes_is_seen_beforehand():
    import sys

    import pytest
    import torch

    import dlbridge

    sys.modules["ml_dtypes"] = None
    source = dlbridge.asdlpack(torch.zeros(3, dtype=torch.bfloat16))
    plan = dlbridge.explain(source, "numpy")
    assert plan.action == "refuse"
    with pytest.raises(dlbridge.MissingLibraryError) as raised:
        dlbridge.convert(source, "numpy")
    assert str(raised.value) == f"{plan.reason} ({plan.hint})"


@pytest.mark.needs("torch")
def test_the_hint_is_whole():
    plan = dlbridge.explain(np.zeros(3), "torch", device="nope")
    assert plan.hint.startswith("pass")
    assert plan.hint.endswith("object")
    assert "(type, id)" in plan.hint


# ---- what is read-only, and shared all the same ----------------------------------------------------------------------

@pytest.mark.needs("torch")
def test_a_write_that_would_end_the_process_is_told(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(4096))
    for source in (np.memmap(path, "f4", "r"), memoryview(np.memmap(path, "f4", "r"))):
        plan = dlbridge.explain(source, "torch", readonly="share")
        assert (plan.action, plan.hint.partition(":")[0]) == ("share", "a write ends the process")
        assert 'mode="c" of numpy.memmap' in plan.hint

    def write():
        dlbridge.convert(np.memmap(path, "f4", "r"), "torch", readonly="share")[0] = 1

    assert run_in_child(write).signal == "SIGSEGV"
    tensor = dlbridge.convert(np.memmap(path, "f4", "c"), "torch")
    tensor[0] = 1
    assert not any(path.read_bytes())
    plan = dlbridge.explain(bytes(8), "torch", readonly="share")
    assert (plan.action, plan.hint) == ("share", "do not write to it: torch cannot be told that it is read-only")


# ---- one obstacle at a time ------------------------------------------------------------------------------------------

@pytest.mark.needs("jax")
@pytest.mark.parametrize("keywords", [{}, {"copy": False}])
def test_one_hint_for_memory_that_is_writable_and_not_aligned(keywords):
    x = aligned(65)[1:]
    hint = dlbridge.explain(x, "jax", **keywords).hint
    code, _, rest = hint.removeprefix("pass ").partition(", which is aligned, ")
    assert rest.startswith('with readonly="share"')
    copied = eval(code, {"dlbridge": dlbridge, "x": x})
    shared = dlbridge.convert(copied, "jax", copy=False, readonly="share")
    assert shared.unsafe_buffer_pointer() == copied.ctypes.data


@pytest.mark.needs("PIL", "jax")
def test_what_is_copied_unless_it_is_forbidden_says_so():
    image = PIL.Image.new("RGB", (4, 2))
    assert dlbridge.explain(image, "numpy").hint == "pass copy=False to share it"
    assert dlbridge.explain(image, "numpy", copy=False).action == "share"
    assert dlbridge.explain(image, "jax").hint == "nothing to do: it is copied"


def test_memory_that_nobody_here_can_fetch_is_refused_beforehand():
    def both():
        source = Producer(device_type=8)        # Metal's
        plan = dlbridge.explain(source, "numpy", device="cpu")
        with pytest.raises(dlbridge.DeviceError, match="metal:0: is memory that dlbridge cannot copy") as error:
            dlbridge.convert(source, "numpy", device="cpu")
        return plan.action, plan.reason == error.value.reason, plan.hint == error.value.hint

    assert run_in_child(both).result() == ("refuse", True, True)


# ---- containers ------------------------------------------------------------------------------------------------------

def test_a_container_has_the_plans_of_its_arrays():
    swapped = np.zeros(3, ">f4")
    tree = {"a": [np.zeros((2, 2)), 1, "b"], "table": np.zeros(2, [("x", "<f4"), ("y", ">f4")]), "c": (swapped,)}
    plan = dlbridge.explain(tree, "numpy", copy=True)
    assert (plan.action, plan.source) == ("refuse", "builtins.dict")
    assert list(plan.leaves) == ["['a'][0]", "['table']['x']", "['table']['y']", "['c'][0]"]
    assert plan.leaves["['c'][0]"] == dlbridge.explain(swapped, "numpy", copy=True)
    with dlbridge.watch() as copies:
        dlbridge.convert_tree(tree, "numpy", copy=True)
    assert {each.path: each.reason for each in copies} == {path: leaf.reason for path, leaf in plan.leaves.items()}
    assert str(plan).splitlines()[-1] == "  leaf     ['c'][0]: copy float32 (3,), 12 bytes, because copy was asked for"
    assert "copy float32 (3,), 12 bytes, because copy was asked for" in plan._repr_html_()


@pytest.mark.needs("torch")
def test_arguments_of_a_function_are_a_container_too():
    arguments = {"image": np.zeros((2, 3))[::-1], "text": b"abc", "more": [np.zeros(2), np.zeros(2, ">i2"), 3]}
    plan = dlbridge.explain(arguments, "torch", readonly="share")
    with dlbridge.watch() as copies:
        dlbridge.accepts("torch", readonly="share")(lambda *, image, text, more: None)(**arguments)
    copied = {path: leaf.reason for path, leaf in plan.leaves.items() if leaf.action == "copy"}
    assert list(copied) == ["['image']", "['more'][1]"]
    assert {each.path: each.reason for each in copies} == {
        "image": copied["['image']"], "more[1]": copied["['more'][1]"]}


def test_what_would_be_read_or_is_no_array_has_no_plans(tmp_path):
    itself = []
    itself.append(itself)
    np.savez(tmp_path / "file.npz", x=np.zeros(3))
    with np.load(tmp_path / "file.npz") as file:
        for src in itself, [1, 2], object(), [file], b"", np.array(["a"]):
            assert dlbridge.explain(src, "numpy").leaves == {}
    assert dlbridge.explain({"x": np.zeros(3)}, "no such target").leaves == {}


def test_a_container_whose_attributes_raise_is_refused_as_before():
    class Own:
        __dataclass_fields__ = ()

        @property
        def __dict__(self):
            raise RuntimeError("no attributes")

    plan = dlbridge.explain([Own()], "numpy")
    assert (plan.action, plan.leaves) == ("refuse", {})
    assert hash(plan) == hash(dlbridge.explain([Own()], "numpy"))
