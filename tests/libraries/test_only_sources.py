"""Libraries that are sources alone: a row for what each hands over, and one for what it cannot, with the hint."""

import gc
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import av
import av.filter
import ctranslate2
import cv2
import numkong
import numpy as np
import pandas
import PIL.Image
import pint
import polars
import pyarrow as pa
import pytest
import skia
import tensorflow
import torch
import zarr
from libraries.rows import COMPLEX, FLOATS, INTEGERS
from support.exporters import Proxy
from support.producers import LegacyProducer

import dlbridge


class Source(NamedTuple):
    """What is true of objects of a library."""

    name: str
    make: Callable[[np.ndarray], Any]
    address: Callable[[Any], int] | None    # of the first element, or None where each export is a copy of the library's
    dtypes: tuple[str, ...]
    axes: int = 1
    writable: bool = False


def address_of_polars(series):
    return series.to_numpy(allow_copy=False).ctypes.data


def values_of_pandas(series):
    return series.to_numpy(getattr(series.dtype, "numpy_dtype", None)).ctypes.data


def nullable(numbers):
    """A series of pandas' own type, which may have nulls."""
    return pandas.Series(numbers, dtype=numbers.dtype.name.title().replace("Ui", "UI"))


NULLABLE = ("int8", "int64", "uint16", "float32", "float64")


NUMBERS = (*INTEGERS, *FLOATS)
NO_HALVES = tuple(name for name in NUMBERS if name != "float16")
SOURCES = (
    Source("pyarrow.Array", pa.array, lambda x: x.buffers()[1].address, NUMBERS),
    Source("pyarrow.ChunkedArray", lambda x: pa.chunked_array([x]), lambda x: x.chunk(0).buffers()[1].address, NUMBERS),
    Source("pyarrow.Tensor", lambda x: pa.Tensor.from_numpy(x.copy()), lambda x: x.to_numpy().ctypes.data, NUMBERS,
           2, True),
    Source("pyarrow.Buffer", lambda x: pa.py_buffer(x.copy()), lambda x: x.address, ("int8",), 1, True),
    Source("pandas.Series", lambda x: pandas.Series(x.copy()), values_of_pandas, (*NUMBERS, *COMPLEX)),
    Source("pandas.Series, every second", lambda x: pandas.Series(x.repeat(2))[::2], values_of_pandas, NUMBERS),
    Source("pandas.Series of Arrow", lambda x: pandas.Series(pa.array(x), dtype=pandas.ArrowDtype(pa.array(x).type)),
           lambda x: x.array.__arrow_array__().chunk(0).buffers()[1].address, NUMBERS),
    Source("pandas.Series that may have nulls", nullable, values_of_pandas, NULLABLE),
    Source("pandas.Series that may have nulls, every second", lambda x: nullable(x.repeat(2))[::2], values_of_pandas,
           NULLABLE),
    Source("polars.Series", polars.Series, address_of_polars, NO_HALVES),
    Source("PIL.Image.Image", PIL.Image.fromarray, None, ("uint8",), 2),
    Source("cv2", lambda x: cv2.flip(cv2.flip(x, 0), 0), lambda x: x.ctypes.data,
           ("uint8", "int16", "float32", "float64"), 2, True),
)
sources = pytest.mark.parametrize(
    ("source", "dtype"), [(source, dtype) for source in SOURCES for dtype in source.dtypes],
    ids=lambda value: getattr(value, "name", value))


def numbers(source, dtype):
    return np.arange(12, dtype=dtype).reshape((12,) if source.axes == 1 else (3, 4))


@sources
def test_values_and_memory(source, dtype):
    expected = numbers(source, dtype)
    given = source.make(expected)
    array = dlbridge.convert(given, "numpy", copy=False)
    assert (array.dtype, array.tolist()) == (dtype, expected.tolist())
    assert array.flags.writeable is source.writable
    if source.address is not None:
        assert array.ctypes.data == source.address(given)


@sources
def test_for_torch_what_is_read_only_is_copied(source, dtype):
    expected = numbers(source, dtype)
    given = source.make(expected)
    tensor = dlbridge.convert(given, "torch")
    assert tensor.tolist() == expected.tolist()
    if source.address is not None:
        assert (tensor.data_ptr() == source.address(given)) is source.writable
        assert dlbridge.convert(given, "torch", readonly="share").data_ptr() == source.address(given)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_memory_outlives_its_object(source):
    expected = numbers(source, source.dtypes[0])
    array = dlbridge.convert(source.make(expected.copy()), "numpy")
    source.make(expected + 50)
    assert array.tolist() == expected.tolist()


def test_zarr_takes_a_tensor():
    assert zarr.array(dlbridge.asdlpack(np.arange(6.0).reshape(2, 3)))[...].tolist() == [[0, 1, 2], [3, 4, 5]]


# ---- images ----------------------------------------------------------------------------------------------------------

SHARED = ("L", "P", "I", "F", "I;16", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV", "LA", "La", "PA")


def image_of(mode):
    image = PIL.Image.new(mode, (3, 2))
    bands = len(image.getbands())
    for x, y in np.ndindex(3, 2):
        image.putpixel((x, y), tuple(range(10 * x + y, 10 * x + y + bands)) if bands > 1 else 10 * x + y)
    return image


@pytest.mark.parametrize("mode", [*SHARED, "1", "LAB"])
def test_images_are_copied_or_on_request_shared(mode):
    """The array interface of an image makes its bytes anew each time; Arrow's gives the image's own memory."""
    image = image_of(mode)
    expected = np.asarray(image)
    np.testing.assert_array_equal(dlbridge.convert(image, "numpy"), expected, strict=True)
    assert dlbridge.explain(image, "numpy").action == "copy"
    if mode not in SHARED:
        with pytest.raises(dlbridge.CopyRequiredError, match="another form"):
            dlbridge.convert(image, "numpy", copy=False)
        return
    for shared in dlbridge.convert(image, "numpy", copy=False), dlbridge.convert(image, "torch", copy=False).numpy():
        np.testing.assert_array_equal(shared, expected, strict=True)
        image.putpixel((0, 0), (9,) * expected.shape[2] if expected.ndim == 3 else 9)
        assert (shared[0, 0] == 9).all()
        image.putpixel((0, 0), tuple(expected[0, 0].tolist()) if expected.ndim == 3 else expected[0, 0].item())
    assert dlbridge.explain(image, "numpy", copy=False).action == "share"


def test_the_memory_of_an_image_outlives_it():
    array = dlbridge.convert(image_of("RGB"), "numpy", copy=False)
    image_of("RGB")
    assert array[:, 0, 0].tolist() == [0, 1]


def test_the_memory_of_an_image_may_change_under_an_immutable_array():
    with pytest.raises(dlbridge.CopyRequiredError, match="writable"):
        dlbridge.convert(image_of("F"), "jax", copy=False)


@pytest.mark.parametrize(("wrong", "error"), [(10**6, dlbridge.ConversionError), (2**70, OverflowError)])
def test_an_image_that_lies_about_its_size_is_not_shared(wrong, error):
    class Lying(PIL.Image.Image):
        lies = False
        width = property(lambda image: wrong if image.lies else image._size[0])

        def __arrow_c_array__(self, requested_schema=None):
            self.lies = True
            return super().__arrow_c_array__(requested_schema)

    image = image_of("RGB")
    image.__class__ = Lying
    with pytest.raises(error):
        dlbridge.convert(image, "numpy", copy=False)


def test_an_image_in_several_blocks_is_not_shared():
    with pytest.raises(dlbridge.CopyRequiredError, match="not contiguous"):
        dlbridge.convert(PIL.Image.new("RGB", (4000, 4000)), "numpy", copy=False)


# ---- classes that hand on the export of immutable arrays -------------------------------------------------------------

@pytest.mark.filterwarnings("ignore:Exporting an unversioned:DeprecationWarning")
@pytest.mark.parametrize("way", [LegacyProducer, lambda array: LegacyProducer(LegacyProducer(array)),
                                 lambda array: Proxy(LegacyProducer(array)), Proxy],
                         ids=["a delegate", "a delegate's delegate", "a delegate's proxy", "a proxy"])
@pytest.mark.parametrize("make", [tensorflow.constant, pa.array], ids=["tensorflow", "pyarrow"])
def test_immutable_arrays_stay_so_behind_a_class(make, way):
    array = make([1.0, 2.0])
    dlbridge.convert(way(array), "torch").zero_()
    assert not dlbridge.convert(way(array), "numpy").flags.writeable
    assert np.asarray(array).tolist() == [1, 2]


# ---- columns ---------------------------------------------------------------------------------------------------------

SIX = np.arange(6.0)
ARROW = pandas.ArrowDtype


def arrow_series(values, kind):
    return pandas.Series(values if isinstance(values, pa.Array) else pa.array(values, kind), dtype=ARROW(kind))


PAIRS = [[1, 2], [3, 4]]


@pytest.mark.parametrize("make", [
    lambda: pa.array(PAIRS, pa.list_(pa.int8(), 2)), lambda: arrow_series(PAIRS, pa.list_(pa.int8(), 2)),
    lambda: polars.Series(PAIRS, dtype=polars.Array(polars.Int8, 2)),
    lambda: polars.Series([PAIRS], dtype=polars.Array(polars.Int8, (2, 2)))[0],
], ids=["pyarrow", "pandas", "polars", "polars, nested"])
@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_lists_of_one_length_are_an_axis(make, to):
    array = dlbridge.convert(make(), to)
    assert np.asarray(array).tolist() == PAIRS
    assert dlbridge.explain(make(), "numpy").action == "share"


@pytest.mark.parametrize("convert", [
    lambda x: dlbridge.convert(x, "numpy", copy=False),
    lambda x: np.from_dlpack(dlbridge.asdlpack(x)),
    lambda x: dlbridge.convert_tree([x], "numpy", copy=False)[0],
    dlbridge.accepts("numpy", copy=False)(lambda x: x),
], ids=["convert", "Tensor", "convert_tree", "accepts"])
@pytest.mark.parametrize("make", [pandas.Series, nullable], ids=["Series", "nullable"])
def test_a_series_is_shared_or_refused(make, convert):
    """Its Arrow stream would copy what is not contiguous, and take NaN for a null."""
    for series in (make(SIX), make(SIX)[::2], make(SIX)[::-1]):
        assert dlbridge.explain(series, "numpy").action == "share"
        array = convert(series)
        assert array.ctypes.data == values_of_pandas(series)
        assert array.tolist() == series.tolist()
        assert not array.flags.writeable
    bools = pandas.Series(SIX > 2, dtype="boolean" if make is nullable else bool)
    assert dlbridge.convert(bools, "numpy", copy=False).tolist() == bools.tolist()
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(make(SIX), "torch", copy=False)
    assert dlbridge.explain(make(SIX), "torch").action == "copy"
    np.testing.assert_array_equal(dlbridge.convert(pandas.Series([1.0, np.nan]), "numpy", copy=False), [1, np.nan])


def test_complex_numbers_are_no_types_of_arrow():
    for dtype in COMPLEX:
        with pytest.raises(dlbridge.ConversionError, match=f"^pyarrow: dtype {dtype}: "):
            dlbridge.convert(np.zeros(2, dtype), pa)


# ---- batches ---------------------------------------------------------------------------------------------------------

WORDS = {
    "numpy.StringDType": lambda: np.array(["a"], np.dtypes.StringDType()),
    "pandas objects": lambda: pandas.Series(["a", None], dtype=object),
    "pandas strings": lambda: pandas.Series(["a", "b"], dtype="string"),
    "pandas strings of Arrow": lambda: pandas.Series(["a", "b"], dtype=ARROW(pa.string())),
    "polars strings": lambda: polars.Series(["a", "b"]),
    "polars objects": lambda: polars.Series([object()], dtype=polars.Object),
    "pyarrow large strings": lambda: pa.array(["a"], pa.large_string()),
    "pyarrow chunks of strings": lambda: pa.chunked_array([["a"], ["b"]]),
    "tensorflow strings": lambda: tensorflow.constant(["a", "b"]),
}


@pytest.mark.parametrize("make", WORDS.values(), ids=WORDS)
def test_arrays_of_words_do_not_fail_a_batch(make):
    words = make()
    converted = dlbridge.convert_tree({"words": words, "numbers": SIX}, "torch")
    assert converted["words"] is words
    assert isinstance(converted["numbers"], torch.Tensor)


# ---- PyAV ------------------------------------------------------------------------------------------------------------

def flipped(frame):
    """The frame upside down, over the same memory."""
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format.name, time_base=Fraction(1, 25))
    parts = [source, graph.add("vflip"), graph.add("buffersink")]
    graph.link_nodes(*parts).configure()
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    graph.push(frame)
    return graph.pull()


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_planes_of_formats_that_pyav_does_not_export(to):
    frame = av.VideoFrame.from_ndarray(np.arange(24, dtype="f4").reshape(4, 6), "grayf32le")
    plane = frame.planes[0]
    for call in (dlbridge.convert, dlbridge.asdlpack):
        with pytest.raises(dlbridge.UnsupportedError, match="has a format that its library does not export"):
            call(plane, *[to][:call is dlbridge.convert])
    assert dlbridge.explain(plane, to).action == "refuse"
    keywords = {"dtype": "float32", "shape": (plane.height, plane.line_size // 4)}
    made = dlbridge.convert(plane, to, **keywords)
    assert made[:, :6].tolist() == frame.to_ndarray().tolist()
    assert dlbridge.explain(plane, to, **keywords).action == "share"
    made[1, 1] = 99
    assert frame.to_ndarray()[1, 1] == 99
    del frame, plane
    gc.collect()
    assert made[1, 1] == 99
    padded = av.VideoFrame(6, 5, "rgb24").planes[0]     # a format that it exports, line by line
    assert dlbridge.convert(padded, to, dtype="uint8", shape=(5, -1)).shape == (5, padded.line_size)
    upside_down = flipped(av.VideoFrame.from_ndarray(np.ones((4, 6), "f4"), "grayf32le")).planes[0]
    assert upside_down.line_size < 0
    with pytest.raises(dlbridge.UnsupportedError, match="begins at its last line"):
        dlbridge.convert(upside_down, to, **keywords)


# ---- which protocol serves best --------------------------------------------------------------------------------------

QUANTITY = pint.UnitRegistry().Quantity


def bitmap():
    made = skia.Bitmap()
    made.allocPixels(skia.ImageInfo.MakeN32Premul(4, 3))
    np.asarray(made)[...] = 7
    return made


@pytest.mark.parametrize(("make", "protocol"), [
    (lambda: numkong.zeros((2, 3), dtype="float32"), "buffer"),
    (lambda: numkong.zeros((2, 3), dtype="uint8"), "dlpack"),
    (bitmap, "buffer"),
    (lambda: skia.Image.fromarray(np.zeros((3, 4, 4), "u1")), "buffer"),
    (lambda: ctranslate2.StorageView.from_array(np.ones((2, 3), "f4")), "array_interface"),
    (lambda: QUANTITY(np.ones(3), "m"), "numpy"),
    (lambda: QUANTITY(torch.ones(3), "m"), "exchange_api"),
    (lambda: pa.array([1.0, 2.0]), "dlpack"),
    (lambda: pa.array([True, False]).cast(pa.int8()).view(pa.bool8()), "arrow"),
], ids=["NumKong", "NumKong, bytes", "skia.Bitmap", "skia.Image", "CTranslate2", "pint", "pint of torch", "pyarrow",
        "pyarrow, bool8"])
def test_the_protocol_that_serves_best(make, protocol):
    source = make()
    plan = dlbridge.explain(source, "numpy")
    assert (plan.action, plan.protocol) == ("share", protocol)
    made = dlbridge.convert(source, "numpy")
    assert made.tolist() == dlbridge.convert(make(), "numpy", copy=True).tolist()
    address = made.ctypes.data
    assert dlbridge.convert(source, "dlbridge").data_ptr == address


@pytest.mark.parametrize("name", ["bfloat16", "e4m3", "e5m2"])
def test_types_that_numkongs_buffer_calls_integers(name):
    source = numkong.full((2, 3), 1.5, dtype=name)
    assert dlbridge.convert(source, "torch").float().tolist() == [[1.5] * 3] * 2


def test_a_quantity_of_a_number_is_no_array():
    with pytest.raises(dlbridge.UnsupportedError, match=r"type pint\.Quantity: offers no array protocol"):
        dlbridge.convert(QUANTITY(2.5, "m"), "numpy")
    tree = {"length": QUANTITY(2.5, "m"), "array": QUANTITY(np.ones(2), "m")}
    made = dlbridge.convert_tree(tree, "torch")
    assert made["length"] is tree["length"]
    assert made["array"].tolist() == [1, 1]


@pytest.mark.parametrize(("make", "hint"), [
    (lambda: pa.array([1, None]), "pass x.fill_null(0), or x.drop_null()"),
    (lambda: pa.array([0], pa.date32()), 'pass x.cast("int32")'),
])
def test_what_pyarrow_refuses_by_dlpack_has_arrows_hint(make, hint):
    with pytest.raises(dlbridge.ConversionError) as raised:
        dlbridge.convert(make(), "numpy")
    assert raised.value.hint == hint
