"""Libraries that are sources alone: a row for what each hands over, and one for what it cannot, with the hint."""

import datetime
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import av
import awkward
import cv2
import dask.array
import h5py
import numpy as np
import pandas
import PIL.Image
import polars
import pyarrow as pa
import pytest
import SimpleITK
import tensorflow
import torch
import zarr
from libraries.rows import COMPLEX, FLOATS, INTEGERS

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


# ---- what has no memory of that kind ---------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    with h5py.File(tmp_path_factory.mktemp("h5") / "file.h5", "w") as file:
        yield file.create_dataset("x", data=np.arange(6.0))


class Refused(NamedTuple):
    """An object that is refused, and the values that the hint gives; None where it is in words."""

    name: str
    make: Callable[[Any], Any]
    values: list[Any] | None


SIX = np.arange(6.0)
REFUSED = (
    Refused("h5py.Dataset", lambda dataset: dataset, SIX.tolist()),
    Refused("zarr.Array", lambda _: zarr.array(SIX), SIX.tolist()),
    Refused("dask.Array", lambda _: dask.array.from_array(SIX), SIX.tolist()),
    Refused("cv2.UMat", lambda _: cv2.UMat(np.ones((2, 2), "uint8")), [[1, 1], [1, 1]]),
    Refused("pandas.Index", lambda _: pandas.Index(SIX), SIX.tolist()),
    Refused("pandas.DataFrame", lambda _: pandas.DataFrame({"x": SIX}), SIX.reshape(6, 1).tolist()),
    Refused("pandas.Series with nulls", lambda _: pandas.Series([1.0, None], dtype="Float64"), [1, 0]),
    Refused("pyarrow nulls", lambda _: pa.array([1, None]), [1, 0]),
    Refused("pyarrow chunks", lambda _: pa.chunked_array([[1], [2]]), [1, 2]),
    Refused("pyarrow bools", lambda _: pa.array([True, False]), None),
    Refused("pyarrow strings", lambda _: pa.array(["a"]), None),
    Refused("pyarrow.Table", lambda _: pa.table({"x": SIX}), None),
    Refused("SimpleITK.Image", lambda _: SimpleITK.GetImageFromArray(SIX.reshape(2, 3)), SIX.reshape(2, 3).tolist()),
    Refused("awkward.Array", lambda _: awkward.Array(SIX), SIX.tolist()),
    Refused("av.VideoFrame", lambda _: av.VideoFrame.from_ndarray(np.full((2, 2, 3), 7, "u1"), "rgb24"),
            np.full((2, 2, 3), 7).tolist()),
    Refused("polars nulls", lambda _: polars.Series([1, None]), [1, 0]),
    Refused("polars bools", lambda _: polars.Series([True, False]), [True, False]),
    Refused("polars.DataFrame", lambda _: polars.DataFrame({"x": SIX}), None),
)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_what_is_refused_says_what_works(row, dataset):
    x = row.make(dataset)
    with pytest.raises(dlbridge.DLBridgeError) as caught:
        dlbridge.convert(x, "numpy")
    hint = caught.value.hint
    assert hint
    assert caught.value.args[0].endswith(f"({hint})")
    if row.values is None:
        assert not re.match(r"pass x[.\[]", hint)
    else:
        line = re.match(r"pass ((?:\w+\.)+\w+\([^)]*\)|x\.\w+\[\d\]|x\[\.\.\.\])", hint)[1]
        assert dlbridge.convert(eval(line), "numpy").tolist() == row.values


# ---- columns of types that no array library has, and the values, or one of several, that their hints give

ARROW = pandas.ArrowDtype
PERIODS = pandas.Series(pandas.period_range("1970-01-02", periods=2, freq="D"))
DAY = datetime.date(1970, 1, 3)


def arrow_series(values, kind):
    return pandas.Series(values if isinstance(values, pa.Array) else pa.array(values, kind), dtype=ARROW(kind))


def opaque():
    return pa.ExtensionArray.from_storage(pa.opaque(pa.float32(), "a type", "a vendor"), pa.array([1.5], pa.float32()))


COLUMNS = {
    "pandas periods": (lambda: PERIODS, [1, 2]),
    "pandas dates": (lambda: arrow_series([DAY], pa.date32()), [2]),
    "pandas times": (lambda: arrow_series([datetime.time(0, 0, 3)], pa.time32("s")), [3]),
    "pandas points in time": (lambda: pandas.Series(pandas.to_datetime([DAY]).as_unit("s")), [2 * 86400]),
    "pandas points in time with a zone": (
        lambda: pandas.Series(pandas.to_datetime([DAY], utc=True).as_unit("s")), [2 * 86400]),
    "pandas durations": (lambda: pandas.Series(pandas.to_timedelta([5])), [5]),
    "pandas durations of Arrow": (lambda: arrow_series([5], pa.duration("s")), [5]),
    "pandas decimals": (lambda: arrow_series([1], pa.decimal128(3)), [1.0]),
    "pandas categories": (lambda: pandas.Series(["a", "b", "a"], dtype="category"), [0, 1, 0]),
    "pandas categories of Arrow": (
        lambda: arrow_series(pa.array(["a", "b"]).dictionary_encode(), pa.dictionary(pa.int32(), pa.string())), [0, 1]),
    "pandas intervals": (lambda: pandas.Series(pandas.interval_range(0, 2)), [0, 1]),
    "pandas structs": (lambda: arrow_series([{"name": 3}], pa.struct({"name": pa.int8()})), [3]),
    "pandas lists": (lambda: arrow_series([[1], [2, 3]], pa.list_(pa.int8())), [1, 2, 3]),
    "pandas bools of Arrow": (lambda: arrow_series([True, False], pa.bool_()), [True, False]),
    "pandas bools with a null": (lambda: pandas.Series([True, None], dtype="boolean"), [True, False]),
    "pandas integers with a null": (lambda: pandas.Series([1, 2, None], dtype="Int8").iloc[1:], [[2, 0], [2]]),
    "pandas floats of Arrow with a null": (lambda: arrow_series([2, None], pa.float32()), [[2, 0], [2]]),
    "pandas objects": (lambda: pandas.Series([1, 2.5], dtype=object), [1, 2.5]),
    "pandas objects with None": (lambda: pandas.Series([1, None], dtype=object).iloc[:1], [1]),
    "pandas chunks": (lambda: pandas.concat([arrow_series([1], pa.int8())] * 2), [1, 1]),
    "pandas storage": (lambda: arrow_series(opaque(), opaque().type), [1.5]),
    "pandas Categorical": (lambda: pandas.Categorical(["a", "b"]), [0, 1]),
    "pandas CategoricalIndex": (lambda: pandas.CategoricalIndex(["a", "b"]), [0, 1]),
    "pandas DatetimeIndex": (lambda: pandas.to_datetime([DAY]).as_unit("s"), [2 * 86400]),
    "pandas TimedeltaIndex": (lambda: pandas.to_timedelta([5]), [5]),
    "pandas PeriodIndex": (lambda: pandas.PeriodIndex(PERIODS), [1, 2]),
    "pandas PeriodArray": (lambda: PERIODS.array, [1, 2]),
    "pandas IntegerArray": (lambda: pandas.array([1, 2]), [1, 2]),
    "polars categories": (lambda: polars.Series(["a", "b"], dtype=polars.Enum(["a", "b"])), [0, 1]),
    "polars dates": (lambda: polars.Series([DAY]), [2]),
    "polars times": (lambda: polars.Series([datetime.time(0, 0, 0, 3)]), [3000]),
    "polars points in time": (lambda: polars.Series([DAY]).cast(polars.Datetime("ms")), [2 * 86400_000]),
    "polars durations": (lambda: polars.Series([datetime.timedelta(0, 0, 5)]), [5]),
    "polars decimals": (lambda: polars.Series(["1.5"]).cast(polars.Decimal(5, 2)), [1.5]),
    "polars bools": (lambda: polars.Series([True, False]), [True, False]),
    "polars lists": (lambda: polars.Series([[1], [2, 3]]), [1, 2, 3]),
    "polars structs": (lambda: polars.Series([{"name": 3}]), [3]),
    "polars nulls": (lambda: polars.Series([2, None]), [[2, 0], [2]]),
    "polars chunks": (lambda: polars.Series([1]).append(polars.Series([2])), [1, 2]),
    "polars storage": (lambda: polars.Series([1.5]).ext.to(polars.Extension("own", polars.Float64, None)), [1.5]),
    "pyarrow periods": (lambda: pa.array(PERIODS), [1, 2]),
    "pyarrow storage": (opaque, [1.5]),
    "pyarrow storage in chunks": (lambda: pa.chunked_array([opaque()]), [1.5]),
    "pyarrow categories": (lambda: pa.array([7, 8]).dictionary_encode(), [[7, 8], [0, 1]]),
    "pyarrow categories in chunks": (lambda: pa.chunked_array([pa.array([7, 8]).dictionary_encode()]), [7, 8]),
    "pyarrow lists": (lambda: pa.array([[1], [2, 3]]), [1, 2, 3]),
    "pyarrow lists in chunks": (lambda: pa.chunked_array([[[1], [2, 3]]]), [1, 2, 3]),
}


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


@pytest.mark.parametrize(("make", "values"), COLUMNS.values(), ids=COLUMNS)
def test_hints_of_columns_work(make, values):
    x = make()
    with pytest.raises(dlbridge.DLBridgeError) as caught:
        dlbridge.convert(x, "dlbridge")
    assert dlbridge.explain(x, "dlbridge").hint == caught.value.hint
    found = []
    for call in re.findall(r"x(?:\.\w+(?:\([^()]*\))?)+", caught.value.hint):
        try:
            found.append(np.asarray(dlbridge.asdlpack(eval(call))).tolist())
        except (AttributeError, dlbridge.DLBridgeError, pa.ArrowException):
            if not re.search(" of | such as |name", caught.value.hint):      # which hold for some columns only
                raise
    assert found
    assert all(each in (values, *values) for each in found)


@pytest.mark.parametrize("x", [
    pandas.Series(["a"]), pandas.Series(["a"], dtype=object), pandas.NA, pandas.NaT,
    pandas.MultiIndex.from_tuples([(1, 2)]),
    polars.Series(["a"]), polars.LazyFrame({"x": [1]}), polars.col("x"), polars.Series([object()], dtype=polars.Object),
], ids=lambda x: type(x).__name__)
def test_what_has_no_numbers_is_refused(x):
    with pytest.raises(dlbridge.DLBridgeError) as caught:
        dlbridge.convert(x, "numpy")
    assert not re.match(r"pass x\.to_numpy", caught.value.hint)


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


def test_bools_of_arrow_by_the_hint():
    """Cast to uint8, then viewed as bool."""
    array = pa.array([True, False, True]).cast("uint8")
    assert dlbridge.convert(array, "numpy").view("bool").tolist() == [True, False, True]
    assert dlbridge.convert(array, torch).view(torch.bool).tolist() == [True, False, True]


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
