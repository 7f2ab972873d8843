"""Masks of every library that has some, where ``to`` names the type: pandas and polars as well."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch

import dlbridge
from dlbridge.libraries import pandas_blocks

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype")
FLOATS = [None, 2.0, 3.0]
SOURCES = {
    "numpy": lambda: np.ma.MaskedArray([1.0, 2.0, 3.0], [True, False, False]),
    "torch": lambda: torch.masked.masked_tensor(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
                                                torch.tensor([False, True, True])),
    "pyarrow": lambda: pyarrow.array(FLOATS),
    "pyarrow, chunks": lambda: pyarrow.chunked_array([pyarrow.array(FLOATS)[:2], pyarrow.array(FLOATS)[2:]]),
    "polars": lambda: polars.Series(FLOATS),
    "polars, chunks": lambda: polars.concat([polars.Series(FLOATS)[:2], polars.Series(FLOATS)[2:]], rechunk=False),
    "pandas": lambda: pandas.array(FLOATS, dtype="Float64"),
    "pandas, a series": lambda: pandas.Series(FLOATS, dtype="Float64"),
    "pandas, a series of Arrow": lambda: pandas.Series(FLOATS, dtype="double[pyarrow]"),
}
KINDS = {"numpy": np.ma.MaskedArray, "torch": torch.masked.MaskedTensor, "pyarrow": pyarrow.DoubleArray,
         "pandas": pandas.arrays.FloatingArray}


def values_of(array):
    if isinstance(array, torch.Tensor):
        pairs = zip(array.get_data().tolist(), array.get_mask().tolist(), strict=True)
        return [value if valid else None for value, valid in pairs]
    if isinstance(array, pandas.api.extensions.ExtensionArray):
        return [None if value is pandas.NA else value for value in array]
    return array.tolist() if hasattr(array, "tolist") else array.to_pylist()


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("source", SOURCES)
def test_each_into_each_type(source, to):
    for keywords in {}, {"copy": True}, {"readonly": "share"}:
        made = dlbridge.convert(SOURCES[source](), KINDS[to], **keywords)
        assert isinstance(made, KINDS[to])
        assert values_of(made) == FLOATS


@pytest.mark.parametrize("source", SOURCES)
def test_a_name_refuses_a_mask(source):
    with pytest.raises(dlbridge.DLBridgeError):
        dlbridge.convert(SOURCES[source](), "numpy")


@pytest.mark.parametrize(("kind", "dtype", "values"), [
    ("IntegerArray", "Int64", [1, None, 3]), ("IntegerArray", "UInt8", [1, None, 3]),
    ("FloatingArray", "Float32", [1.5, None]), ("BooleanArray", "boolean", [True, None, False]),
])
def test_types_of_pandas(kind, dtype, values):
    array = pandas.array(values, dtype=dtype)
    there = dlbridge.convert(array, np.ma.MaskedArray)
    assert there.tolist() == values
    assert there.dtype == array.dtype.numpy_dtype
    back = dlbridge.convert(there, getattr(pandas.arrays, kind))
    assert back.dtype == array.dtype
    assert values_of(back) == values
    assert dlbridge.convert(array, getattr(pandas.arrays, kind)) is array
    dense = dlbridge.convert(there.data, getattr(pandas.arrays, kind))
    assert dense.dtype == array.dtype
    assert not dense.isna().any()


def test_values_of_pandas_are_shared_and_not_written():
    array = pandas.array([1, None, 3])
    there = dlbridge.convert(array, np.ma.MaskedArray)
    assert not there.data.flags.writeable
    assert np.shares_memory(there.data, array._data)
    assert dlbridge.explain(array, np.ma.MaskedArray).action == "share"
    tensor = dlbridge.convert(array, torch.masked.MaskedTensor)
    tensor.get_data()[0] = 9
    assert values_of(array) == [1, None, 3]
    mask = np.ma.MaskedArray([1.0, 2.0], [True, False])
    made = dlbridge.convert(mask, pandas.arrays.FloatingArray)
    assert np.shares_memory(made._data, mask.data)


def test_arrays_of_pandas_without_a_missing_value():
    for array in (pandas.array([1, 2]), pandas.array([1.0, 2.0]), pandas.array([True, False]),
                  pandas.array([1, None, 2])[::2]):
        values = [value for value in array if value is not pandas.NA]
        for to in "numpy", "torch":
            assert dlbridge.convert(array, to).tolist() == values
        for kind in KINDS["numpy"], KINDS["torch"], type(array):
            assert values_of(dlbridge.convert(array, kind)) == values
        assert not dlbridge.convert(array, "numpy").flags.writeable


def test_what_pandas_cannot_keep():
    floats = pandas.arrays.FloatingArray
    assert dlbridge.convert(np.arange(3, dtype=">f8"), floats).tolist() == [0, 1, 2]
    with pytest.raises(dlbridge.ConversionError, match=r"masked: shape \(2, 2\): is not of one axis"):
        dlbridge.convert(np.ones((2, 2)), floats)
    with pytest.raises(dlbridge.ConversionError, match=r"masked: shape \(\): is not of one axis"):
        dlbridge.convert(np.float64(3), floats)
    with pytest.raises(dlbridge.ConversionError, match=r"masked: dtype int64: is none of FloatingArray \(pass pandas"):
        dlbridge.convert(np.ma.MaskedArray([1, 2], [True, False]), floats)
    for wrong in np.ones((2, 2)), np.float64(3), np.ma.MaskedArray([1, 2], [True, False]):
        assert dlbridge.explain(wrong, floats).action == "refuse"
    made = dlbridge.convert_tree({"x": np.ones(2), "y": pandas.array([1.0, None])}, floats)
    assert [type(value) for value in made.values()] == [floats, floats]


@pytest.mark.parametrize("values", [[True, None, False], [True, False]], ids=str)
@pytest.mark.parametrize("make", [
    pyarrow.array, lambda values: pyarrow.chunked_array([values, []], pyarrow.bool_()), polars.Series,
    lambda values: pandas.Series(values, dtype="bool[pyarrow]"),
], ids=["pyarrow", "pyarrow, chunks", "polars", "pandas"])
def test_bools_of_arrow_are_unpacked(make, values):
    for kind in pandas.arrays.BooleanArray, KINDS["numpy"], KINDS["torch"]:
        assert values_of(dlbridge.convert(make(values), kind)) == values
        assert dlbridge.explain(make(values), kind).action == "copy"
        with pytest.raises(dlbridge.CopyRequiredError, match="eight bools in a byte"):
            dlbridge.convert(make(values), kind, copy=False)
        with dlbridge.watch() as copies:
            dlbridge.convert(make(values), kind)
        assert sum(copy.times for copy in copies) == 2


def test_masks_of_arrow_are_unpacked_and_their_values_shared():
    series = pandas.Series([1, None, 3], dtype="int64[pyarrow]")
    there = dlbridge.convert(series, np.ma.MaskedArray)
    assert there.ctypes.data == series.array.__arrow_array__().chunk(0).buffers()[1].address
    assert dlbridge.explain(series, np.ma.MaskedArray).reason == "of mask: its mask has eight elements in a byte"
    with dlbridge.watch() as copies:
        dlbridge.convert(series, np.ma.MaskedArray)
    assert [copy.times for copy in copies] == [1]


def test_public_methods_of_pandas_do_as_well(monkeypatch):
    monkeypatch.setattr(pandas_blocks, "in_use", lambda: False)
    array = pandas.array([1, None, 3])
    assert dlbridge.convert(array, np.ma.MaskedArray).tolist() == [1, None, 3]
    assert dlbridge.explain(array, np.ma.MaskedArray).reason == "of values, mask: pandas gives its values by a copy"
    with pytest.raises(dlbridge.CopyRequiredError, match="pandas gives its values by a copy"):
        dlbridge.convert(array, np.ma.MaskedArray, copy=False)


def test_what_a_type_of_pandas_does_not_take():
    with pytest.raises(dlbridge.ConversionError, match="masked: dtype float64: is none of IntegerArray"):
        dlbridge.convert(np.ma.MaskedArray([1.0, 2.0], [True, False]), pandas.arrays.IntegerArray)
    with pytest.raises(dlbridge.UnsupportedError, match="is a source only"):
        dlbridge.convert(np.ones(2), "pandas")
    with pytest.raises(dlbridge.UnsupportedError, match="is a source only"):
        dlbridge.convert(np.ones(2), pandas.Series)
