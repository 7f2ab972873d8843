"""Images of Pillow as a target: which pixels are shared, which are copied, and which there are none of."""

import numpy as np
import PIL.Image
import pytest
import torch
from support.optional import of, params

import dlbridge

pytestmark = pytest.mark.needs("PIL")

# dtype, shape, mode, whether memory is shared
PIXELS = (
    ("uint8", (3, 5), "L", True), ("uint8", (3, 5, 4), "RGBA", True), ("uint16", (3, 5), "I;16", True),
    ("uint8", (3, 5, 3), "RGB", False), ("uint8", (3, 5, 2), "LA", False), ("int32", (3, 5), "I", False),
    ("float32", (3, 5), "F", False), ("bool", (3, 5), "1", False),
)


def pixels(dtype, shape):
    return (np.arange(np.prod(shape)) % 2).astype(dtype).reshape(shape)


@pytest.mark.parametrize(("dtype", "shape", "mode", "shared"), PIXELS, ids=[row[2] for row in PIXELS])
def test_pixels(dtype, shape, mode, shared):
    source = pixels(dtype, shape)
    image = dlbridge.convert(source, "pillow")
    assert (image.mode, image.size) == (mode, (5, 3))
    assert np.array_equal(np.asarray(image), source)
    assert dlbridge.explain(source, "pillow").action == ("share" if shared else "copy")
    if not shared:
        with pytest.raises(dlbridge.CopyRequiredError, match="memory is copied by pillow, which has"):
            dlbridge.convert(source, "pillow", copy=False)
    before = np.asarray(image).copy()
    source[0, 0] = ~source[0, 0] if dtype == "bool" else source[0, 0] + 1
    assert np.array_equal(np.asarray(image), before) is not shared


def test_what_is_written_to_an_image_stays_there():
    source = pixels("uint8", (3, 5))
    image = dlbridge.convert(source, "pillow", copy=False)
    image.putpixel((0, 0), 200)
    assert (image.getpixel((0, 0)), source[0, 0]) == (200, 0)


def test_read_only_pixels_stay_as_they_are():
    """Image.frombytes writes to memory that an image shares."""
    memory = bytes(15)
    image = dlbridge.convert(memory, "pillow", shape=(3, 5))
    image.frombytes(b"\7" * 15)
    assert memory == bytes(15)
    assert dlbridge.convert(memory, "pillow", shape=(3, 5), copy=False, readonly="share").size == (5, 3)


def test_a_copy_of_an_image_is_one_of_its_own_mode():
    image = PIL.Image.new("RGB", (2, 2), (200, 10, 10)).quantize(4)
    copy = dlbridge.convert(image, "pillow", copy=True)
    assert copy is not image
    assert copy.mode == "P"
    assert copy.convert("RGB").getpixel((0, 0)) == image.convert("RGB").getpixel((0, 0))


@pytest.mark.parametrize("mode", ["P", "PA"])
def test_indices_of_a_palette_are_announced(mode):
    image = PIL.Image.new("RGB", (2, 2), (200, 10, 10)).quantize(4).convert(mode)
    for keywords in ({}, {"copy": False}):
        hint = dlbridge.explain(image, "numpy", **keywords).hint
        code = hint.rpartition("pass ")[2].partition(" for colours: the values are indices of a palette")[0]
        assert dlbridge.convert(eval(code, {"x": image}), "numpy")[0, 0].tolist() == [200, 10, 10]
    assert "palette" not in dlbridge.explain(image, "pillow", copy=True).hint
    other = type("Image", (bytearray,), {"__module__": "PIL.other"})(3)
    assert dlbridge.explain(other, "numpy").action == "share"
    assert "palette" not in dlbridge.explain(image.convert("RGB"), "numpy").hint


@pytest.mark.parametrize("to", ["pillow", PIL, PIL.Image, PIL.Image.Image, PIL.Image.new("L", (1, 1))],
                         ids=["name", "package", "module", "type", "image"])
def test_forms_of_the_target(to):
    source = pixels("uint8", (3, 5))
    image = dlbridge.convert(source, to)
    assert np.array_equal(np.asarray(image), source)
    assert dlbridge.convert(image, to) is image


@pytest.mark.parametrize("make", params([
    lambda source: source[::-1], lambda source: source[:, ::2], lambda source: source.T,
    lambda source: source.astype(">u2"), of("torch")(lambda source: torch.from_numpy(source.copy()))]))
def test_other_layouts_are_copied(make):
    source = make(pixels("uint8", (4, 4)))
    assert np.array_equal(np.asarray(dlbridge.convert(source, "pillow")), np.asarray(source))


@pytest.mark.parametrize(("dtype", "shape"), [
    ("uint8", (3,)), ("uint8", (3, 5, 1)), ("uint8", (3, 5, 5)), ("uint8", (2, 3, 5, 3)), ("uint16", (3, 5, 3)),
    ("uint8", (0, 5)), ("float64", (3, 5)), ("complex64", (3, 5))])
def test_what_is_no_image(dtype, shape):
    source = pixels(dtype, shape)
    with pytest.raises(dlbridge.ConversionError, match=r"^pillow: ") as caught:
        dlbridge.convert(source, "pillow")
    plan = dlbridge.explain(source, "pillow")
    assert (plan.action, plan.reason) == ("refuse", caught.value.reason)


@pytest.mark.parametrize(("dtype", "shape", "mode"), [
    ("uint8", (3, 4, 5), "RGB"), ("uint8", (1, 4, 5), "L"), ("uint8", (4, 5, 1), "L"), ("uint8", (2, 4, 5, 3), "RGB"),
    ("int32", (4, 5, 3), "RGB"),
    ("float32", (4, 5, 3), "RGB"), ("bool", (4, 5, 4), "RGBA"), ("float32", (1, 4, 5), "F"),
])
@pytest.mark.parametrize("library", params(["numpy", "torch"]))
def test_a_hint_makes_an_image(library, dtype, shape, mode):
    source = dlbridge.convert(pixels(dtype, shape), library)
    with pytest.raises(dlbridge.ConversionError, match="is none that pillow has") as caught:
        dlbridge.convert(source, "pillow")
    names = {"x": source, "dlbridge": dlbridge}
    code = caught.value.hint.removeprefix("pass ").removeprefix("one image, ")
    assert dlbridge.convert(eval(code, names), "pillow").mode == mode


def test_numbers_of_eight_bytes_are_narrowed():
    source = np.full((4, 5), 0.5)
    with pytest.raises(dlbridge.ConversionError, match=r"does not have \(pass narrow=True\)"):
        dlbridge.convert(source, "pillow")
    assert dlbridge.convert(source, "pillow", narrow=True).getpixel((0, 0)) == 0.5


def test_a_function_of_arrays_gives_an_image_for_an_image():
    invert = dlbridge.accepts("numpy", returns="like")(lambda image: 255 - image)
    image = invert(PIL.Image.new("L", (5, 3), 55))
    assert isinstance(image, PIL.Image.Image)
    assert image.getpixel((0, 0)) == 200


def test_an_image_takes_a_copy():
    image = PIL.Image.new("L", (5, 3))
    source = pixels("uint8", (3, 5))
    assert dlbridge.convert(source, "pillow", out=image) is image
    assert np.array_equal(np.asarray(image), source)
