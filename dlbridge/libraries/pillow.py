"""Pillow: images, whose array interface copies, and whose memory Arrow's interface gives without its shape.

As a target, it shares memory whose pixels it has in the same form, and copies the rest.
"""

from typing import Any, NamedTuple

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import NO_LABELS, NO_SUBBYTE, PLAIN, compact

SEEN = "seen in 13.0.0"


class Form(NamedTuple):
    """How the pixels of a mode lie in memory, with strides in elements."""

    dtype: str
    pixel: int = 1                      # from one pixel to the next
    bands: int = 0                      # 0 of those that are no axis
    band: int = 1                       # from one band to the next


FOUR, THREE, TWO = Form("uint8", 4, 4), Form("uint8", 4, 3), Form("uint8", 4, 2, 3)
FORMS = {
    "L": Form("uint8"), "P": Form("uint8"), "I": Form("int32"), "F": Form("float32"), "I;16": Form("uint16"),
    "RGBA": FOUR, "RGBa": FOUR, "RGBX": FOUR, "CMYK": FOUR, "RGB": THREE, "YCbCr": THREE, "HSV": THREE,
    "LA": TWO, "La": TWO, "PA": TWO,
}


def form_of(image: Any) -> tuple[str, tuple[int, ...], tuple[int, ...], bool] | None:
    """The type, the shape and the strides of an image that is loaded, and whether it is read-only.

    None where memory is not what the array interface gives: bools of mode "1" are bytes of 0 and 255, and of "LAB" two
    bands are shifted.
    """
    form = FORMS.get(image.mode)
    if form is None:
        return None
    bands = bool(form.bands)            # whether they are an axis
    shape = (image.height, image.width, *[form.bands] * bands)
    strides = (image.width * form.pixel, form.pixel, *[form.band] * bands)
    return form.dtype, shape, strides, bool(image.readonly)


def about_values(image: Any) -> str:
    """Of a palette's image, that its values are no colours."""
    indices = getattr(image, "mode", None) in ("P", "PA")       # others have types of that name
    return 'pass x.convert("RGB") for colours: the values are indices of a palette' if indices else ""


class Mode(NamedTuple):
    """How Pillow reads pixels into an image, and whether it can lie over them as they are."""

    name: str
    raw: str
    shared: bool = False


LARGEST_SIDE = 2**31 - 1
# By the dtype, and by how many values a pixel has if they are an axis.
MODES = {
    ("uint8", ()): Mode("L", "L", True), ("uint8", (2,)): Mode("LA", "LA"), ("uint8", (3,)): Mode("RGB", "RGB"),
    ("uint8", (4,)): Mode("RGBA", "RGBA", True), ("uint16", ()): Mode("I;16", "I;16", True),
    ("bool", ()): Mode("1", "1;8"), ("int32", ()): Mode("I", "I"), ("float32", ()): Mode("F", "F"),
}


def takes(dtype: str, shape: tuple[int, ...]) -> bool | str:
    mode = MODES.get((dtype, shape[2:])) if len(shape) > 1 else None
    if mode is None:
        return hint(dtype, shape)
    if 0 in shape:
        return "an image has pixels"
    return mode.shared if max(shape) <= LARGEST_SIDE else "pass a part of it"


def hint(dtype: str, shape: tuple[int, ...]) -> str:
    """What makes an image of numbers that are none as they lie."""
    if len(shape) < 2:
        return "reshape it to lines and columns"
    if len(shape) > 3:
        return "pass one image, x[0]"
    if 1 in shape[::2]:
        return "pass x[0]" if shape[0] == 1 else "pass x[..., 0]"
    if ("uint8", shape[2:]) in MODES:
        numbers = 'dlbridge.convert(x, "numpy")'
        return f'pass {numbers}.astype("uint8")' if dtype == "int32" else f'pass ({numbers} * 255).astype("uint8")'
    if (dtype, shape[:1]) in MODES:
        return 'pass dlbridge.convert(x, "numpy").transpose(1, 2, 0)'
    return "an image has one to four bands, which are its last axis"


def make(module: Any, array: Any, dtype: str) -> Any:
    """An image over an ndarray's memory, or of a copy."""
    mode = MODES[dtype, array.shape[2:]]
    return module.frombuffer(mode.name, array.shape[1::-1], array, "raw", mode.raw, 0, 1)


LIBRARY = Library(
    name="pillow",
    module="PIL.Image",
    arrays=(
        Arrays("Image",
               copies=Fact(True, SEEN, "makes its bytes anew each time that its interface is asked for"),
               arrow_form=Fact(form_of, SEEN, "has its pixels in one axis, those of three bands in four "
                               "bytes each; the memory is the image's, which may be written"),
               about_values=Fact(about_values, SEEN, "has the colours of some modes in a palette")),
    ),
    delivery="importer:prepare_for_ndarrays",
    importer=make,
    array_types=("Image",),
    duplicate=Fact(lambda image, detach: image.copy(), SEEN, "has modes of the same memory, and palettes"),
    lacks=(
        *compact(SEEN, "has pixels side by side, line after line"),
        *PLAIN,
        *NO_LABELS,
        *NO_SUBBYTE,
        Fact("OTHER_DEVICES", SEEN, "has images of the host alone"),
        Fact("READ_ONLY", SEEN, "writes to memory that an image shares by frombytes, though not by putpixel or paste"),
    ),
    dtypes=(Fact(tuple(dict.fromkeys(dtype for dtype, _ in MODES)), SEEN),),
    takes=Fact(takes, SEEN, "has the pixels of three bands in four bytes each, and numbers in lines of their own"),
    fewest_axes=Fact(2, SEEN, "has lines and columns"),
    most_axes=Fact(3, SEEN, "has at most one axis for bands"),
)
