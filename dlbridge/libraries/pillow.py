"""Pillow: images, whose array interface copies, and whose memory Arrow's interface gives without its shape."""

from typing import Any, NamedTuple

from dlbridge.libraries.library import Arrays, Fact, Library


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


LIBRARY = Library(
    name="pillow",
    module="PIL.Image",
    arrays=(
        Arrays("Image",
               copies=Fact(True, "seen in 13.0.0", "makes its bytes anew each time that its interface is asked for"),
               arrow_form=Fact(form_of, "seen in 13.0.0", "has its pixels in one axis, those of three bands in four "
                               "bytes each; the memory is the image's, which may be written")),
    ),
)
