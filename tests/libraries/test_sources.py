"""Libraries that are sources alone: a row for what each hands over, and one for what it cannot, with the way out."""

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
    return series.to_numpy().ctypes.data


NUMBERS = (*INTEGERS, *FLOATS)
NO_HALVES = tuple(name for name in NUMBERS if name != "float16")
SOURCES = (
    Source("pyarrow.Array", pa.array, lambda x: x.buffers()[1].address, NUMBERS),
    Source("pyarrow.ChunkedArray", lambda x: pa.chunked_array([x]), lambda x: x.chunk(0).buffers()[1].address, NUMBERS),
    Source("pyarrow.Tensor", lambda x: pa.Tensor.from_numpy(x.copy()), lambda x: x.to_numpy().ctypes.data, NUMBERS,
           2, True),
    Source("pyarrow.Buffer", lambda x: pa.py_buffer(x.copy()), lambda x: x.address, ("int8",), 1, True),
    Source("pandas.Series", lambda x: pandas.Series(x.copy()), values_of_pandas, NUMBERS),
    Source("pandas.Series of Arrow", lambda x: pandas.Series(pa.array(x), dtype=pandas.ArrowDtype(pa.array(x).type)),
           lambda x: x.array.__arrow_array__().chunk(0).buffers()[1].address, NUMBERS),
    Source("pandas.Series that may have nulls",
           lambda x: pandas.Series(x, dtype=x.dtype.name.title().replace("Ui", "UI")),
           None, ("int8", "int64", "uint16", "float32", "float64")),
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
    """An object that is refused, and the values that the way out gives; None where it is in words."""

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
    Refused("pyarrow lists of one length", lambda _: pa.FixedSizeListArray.from_arrays(pa.array(SIX), 3), SIX.tolist()),
    Refused("pyarrow bools", lambda _: pa.array([True, False]), None),
    Refused("pyarrow strings", lambda _: pa.array(["a"]), None),
    Refused("pyarrow.Table", lambda _: pa.table({"x": SIX}), None),
    Refused("SimpleITK.Image", lambda _: SimpleITK.GetImageFromArray(SIX.reshape(2, 3)), SIX.reshape(2, 3).tolist()),
    Refused("awkward.Array", lambda _: awkward.Array(SIX), SIX.tolist()),
    Refused("av.VideoFrame", lambda _: av.VideoFrame.from_ndarray(np.full((2, 2, 3), 7, "u1"), "rgb24"),
            np.full((2, 2, 3), 7).tolist()),
    Refused("polars nulls", lambda _: polars.Series([1, None]), [1, 0]),
    Refused("polars bools", lambda _: polars.Series([True, False]), None),
    Refused("polars.DataFrame", lambda _: polars.DataFrame({"x": SIX}), None),
)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_what_is_refused_says_what_works(row, dataset):
    x = row.make(dataset)
    with pytest.raises(dlbridge.DLBridgeError) as caught:
        dlbridge.convert(x, "numpy")
    way_out = caught.value.way_out
    assert way_out
    assert caught.value.args[0].endswith(f"({way_out})")
    if row.values is None:
        assert not re.match(r"pass x[.\[]", way_out)
    else:
        line = re.match(r"pass ((?:\w+\.)+\w+\([^)]*\)|x\.\w+\[\d\]|x\[\.\.\.\])", way_out)[1]
        assert dlbridge.convert(eval(line), "numpy").tolist() == row.values


def test_bools_of_arrow_by_the_way_out():
    """Cast to uint8, then viewed as bool."""
    array = pa.array([True, False, True]).cast("uint8")
    assert dlbridge.convert(array, "numpy").view("bool").tolist() == [True, False, True]
    assert dlbridge.convert(array, torch).view(torch.bool).tolist() == [True, False, True]


def test_complex_numbers_are_no_types_of_arrow():
    for dtype in COMPLEX:
        with pytest.raises(dlbridge.ConversionError, match=f"^pyarrow: dtype {dtype}: "):
            dlbridge.convert(np.zeros(2, dtype), pa)
