"""Sources and targets that users add."""

import types
import weakref

import numpy as np
import pytest
import torch

import dlbridge
from dlbridge.testing.child import run_in_child

pytestmark = pytest.mark.quick


class Image:
    """A library's array without any protocol."""

    def __init__(self, pixels):
        self.pixels = pixels


class Thumbnail(Image):
    """And a subclass of it."""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", [Image, Thumbnail])
@pytest.mark.parametrize("acquire", [
    lambda image: image.pixels,
    lambda image: image.pixels.__dlpack__(),
    lambda image: dlbridge.asdlpack(image.pixels),
    lambda image: memoryview(image.pixels),
], ids=["array", "capsule", "Tensor", "buffer"])
def test_registered_source_shares(kind, acquire):
    pixels = np.arange(6, dtype="u1").reshape(2, 3)
    with pytest.raises(dlbridge.UnsupportedError, match=kind.__name__):
        dlbridge.convert(kind(pixels), "torch")
    dlbridge.register_source(Image, acquire)
    tensor = dlbridge.convert(kind(pixels), "torch")
    assert tensor.data_ptr() == pixels.ctypes.data
    assert tensor.shape == (2, 3)


@pytest.mark.needs("torch")
def test_the_last_registered_comes_first_and_before_protocols():
    array = np.zeros(3).view(type("Scaled", (np.ndarray,), {}))
    dlbridge.register_source(type(array), lambda obj: np.full(3, 1.0))
    assert dlbridge.convert(array, "torch").tolist() == [1, 1, 1]
    dlbridge.register_source(lambda kind: kind.__name__ == "Scaled", lambda obj: np.full(3, 2.0))
    assert dlbridge.convert(array, "torch").tolist() == [2, 2, 2]


def test_source_that_returns_its_argument_is_refused():
    dlbridge.register_source(Image, lambda image: image)
    with pytest.raises(dlbridge.UnsupportedError, match="returned its argument"):
        dlbridge.convert(Image(None), "numpy")


def test_error_of_a_registered_source_passes_through():
    def acquire(image):
        raise KeyError("no pixels")

    dlbridge.register_source(Image, acquire)
    with pytest.raises(KeyError, match="no pixels"):
        dlbridge.convert(Image(None), "numpy")


def test_registered_target_is_given_a_tensor():
    dlbridge.register_target("list", lambda tensor: np.from_dlpack(tensor).tolist(), array_type=list)
    assert "list" in dlbridge.targets()
    assert dlbridge.convert(np.arange(3), "list") == [0, 1, 2]
    given = [1]
    assert dlbridge.convert(given, "list") is given


# Unless it says that it supports them, a target is given neither backward strides nor read-only memory.
@pytest.mark.parametrize(("supports", "shared"), [
    ((), False), (("NEGATIVE_STRIDES",), False), (("READ_ONLY",), False), (("NEGATIVE_STRIDES", "READ_ONLY"), True),
])
def test_what_a_target_supports_is_shared(supports, shared):
    source = np.arange(6)[::-1]
    source.flags.writeable = False
    dlbridge.register_target("tensor", lambda tensor: tensor, supports=supports)
    tensor = dlbridge.convert(source, "tensor")
    assert (tensor.data_ptr == source.ctypes.data) == shared
    assert np.from_dlpack(tensor).tolist() == [5, 4, 3, 2, 1, 0]
    assert tensor.readonly == shared


def test_registered_target_refuses_types_it_lacks():
    dlbridge.register_target("floats", lambda tensor: tensor, dtypes=["float32"])
    assert dlbridge.convert(np.zeros(3, "f4"), "floats").dtype == "float32"
    with pytest.raises(dlbridge.ConversionError, match="floats: dtype float64"):
        dlbridge.convert(np.zeros(3), "floats")


def test_failure_of_a_registered_target_is_wrapped_and_releases_the_source():
    def deliver(tensor):
        raise ZeroDivisionError("no room")

    dlbridge.register_target("broken", deliver)
    source = bytearray(8)
    with pytest.raises(dlbridge.ConversionError, match="no room") as caught:
        dlbridge.convert(source, "broken")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    del caught
    source.append(1)


@pytest.mark.parametrize(("function", "arguments", "error"), [
    (dlbridge.register_source, (3, len), TypeError),
    (dlbridge.register_source, (Image, 3), TypeError),
    (dlbridge.register_target, (3, len), TypeError),
    (dlbridge.register_target, ("name", 3), TypeError),
])
def test_wrong_arguments_are_refused(function, arguments, error):
    with pytest.raises(error, match=r"^register_\w+: .*\(.+\)$"):
        function(*arguments)


def test_unknown_abilities_are_refused():
    with pytest.raises(ValueError, match="WINGS"):
        dlbridge.register_target("bird", len, supports=["WINGS"])


# ---- what must not happen --------------------------------------------------------------------------------------------

def test_sources_that_make_each_other_end_in_an_error():
    def convert_it():
        dlbridge.register_source(Image, lambda image: Image(None))
        with pytest.raises(RecursionError):
            dlbridge.convert(Image(None), "numpy")
        return "survived"

    assert run_in_child(convert_it).result() == "survived"


@pytest.mark.parametrize("source", [np.arange(3, dtype=">i4"), np.zeros(3, [("a", "i1"), ("b", "i4")])["b"]],
                         ids=["swapped", "odd strides"])
def test_a_namespace_is_not_what_it_calls_itself(source):
    """Only the imported module numpy is known to hold what others cannot."""
    impostor = types.SimpleNamespace(__name__="numpy", from_dlpack=np.from_dlpack)
    assert dlbridge.convert(source, impostor).tolist() == source.tolist()


def test_a_registered_target_gets_no_other_librarys_rows():
    dlbridge.register_target("memmap", np.from_dlpack)
    assert dlbridge.convert(np.arange(3, dtype=">i4"), "memmap").tolist() == [0, 1, 2]


def test_an_array_as_target_is_not_kept_alive():
    class Like(np.ndarray):
        pass

    like = np.zeros(3).view(Like)
    gone = weakref.ref(like)
    assert type(dlbridge.convert(bytearray(3), like)) is np.ndarray
    del like
    assert gone() is None


def test_abilities_may_come_from_a_generator():
    dlbridge.register_target("flags", lambda tensor: tensor, supports=(name for name in ["READ_ONLY"]))
    assert dlbridge.convert(b"abc", "flags").readonly


@pytest.mark.parametrize("alignment", [1, 16, 256])
def test_what_is_delivered_is_aligned(alignment):
    dlbridge.register_target("aligned", lambda tensor: tensor, alignment=alignment)
    for offset in range(0, 300, 3):
        tensor = dlbridge.convert(bytearray(1000)[offset:], "aligned")
        assert tensor.data_ptr % alignment == 0
        source = np.arange(1000, dtype="u1")[offset:]
        tensor = dlbridge.convert(source, "aligned")
        assert tensor.data_ptr % alignment == 0
        assert np.from_dlpack(tensor).tolist() == source.tolist()


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("kind", "make", "make_other"), [
    (torch.FloatTensor, lambda: torch.ones(3), lambda: torch.ones(3, dtype=torch.int32)),
    (torch.nn.Buffer, lambda: torch.nn.Buffer(torch.ones(3)), lambda: torch.ones(3)),
    (torch.nn.Parameter, lambda: torch.nn.Parameter(torch.ones(3), False), lambda: torch.ones(3)),
], ids=["FloatTensor", "Buffer", "Parameter"])
def test_a_type_that_looks_at_the_instance_is_asked_each_time(kind, make, make_other):
    for both in ((make(), make_other()), (make_other(), make())):
        dlbridge.register_target("special", np.from_dlpack, array_type=kind)
        for source in both * 3:
            owned = isinstance(source, kind)
            assert (dlbridge.convert(source, "special") is source) == owned
            assert (dlbridge.explain(source, "special").action == "return") == owned
            assert (dlbridge.convert_tree([source], "special")[0] is source) == owned
            assert type(dlbridge.convert(source, "special", copy=True)) is np.ndarray


@pytest.mark.parametrize("array_type", ["str", np.zeros(3), (np.ndarray, "str"), [np.ndarray]])
def test_what_is_no_type_is_refused_at_once(array_type):
    with pytest.raises(TypeError, match=r"^register_target: array_type .*: .* \(.+\)$"):
        dlbridge.register_target("never", len, array_type=array_type)
    assert "never" not in dlbridge.targets()


@pytest.mark.parametrize("keywords", [
    {"dtypes": ["flot32"]}, *({"alignment": wrong} for wrong in ("x", 0, -1, 3, 4096, 2**70, 10**5000, 64.0, None))])
def test_wrong_settings_are_refused_at_once(keywords):
    with pytest.raises(ValueError, match=r"^register_target: \w+ .*: .* \(.+\)$"):
        dlbridge.register_target("never", len, **keywords)
