"""What to type where dlbridge makes no array of what is asked for: the code of each hint runs."""

import dask.array
import numpy as np
import pandas
import polars
import pytest
import xarray
import zarr
from support.tools import load_tool

import dlbridge
from dlbridge.libraries.library import Arrays
from dlbridge.libraries.names import INSTEAD

KINDS = {
    "pandas": pandas.DataFrame, "polars": polars.DataFrame, "xarray": xarray.DataArray,
    "zarr": zarr.Array, "dask": dask.array.Array, "list": list, "tuple": tuple,
    "pandas.series": pandas.Series, "pandas.index": pandas.Index, "polars.series": polars.Series,
    "bytes": bytes, "bytearray": bytearray,
}
NAMES = {"dlbridge": dlbridge, "pandas": pandas, "polars": polars, "xarray": xarray, "zarr": zarr,
         "dask": dask}


@pytest.mark.parametrize("name", INSTEAD)
def test_what_to_call_instead(name):
    source = np.arange(6, dtype="uint8")
    source = source if "." in name else source.reshape(2, 3)        # a series has one axis
    with pytest.raises(dlbridge.UnsupportedError) as caught:
        dlbridge.convert(source, name)
    made = eval(caught.value.hint.removeprefix("call "), {**NAMES, "x": source})
    assert type(made) is KINDS.get(name, np.ndarray)
    values = list(made) if isinstance(made, (bytes, bytearray)) else np.asarray(made).ravel().tolist()
    assert values == list(range(6))


@pytest.mark.parametrize("to", [pandas.Series, pandas.Series([1]), pandas.Index, polars.Series, polars.Series([1])])
def test_a_series_is_made_of_what_is_wanted_as_one(to):
    with pytest.raises(dlbridge.UnsupportedError) as caught:
        dlbridge.convert(np.zeros(3), to)
    made = eval(caught.value.hint.removeprefix("call "), {**NAMES, "x": np.zeros(3)})
    assert type(made).__name__ == ("Index" if to is pandas.Index else "Series")


@pytest.mark.parametrize("module", [pandas, polars, xarray, zarr, dask])
def test_a_module_that_is_a_source_only(module):
    with pytest.raises(dlbridge.UnsupportedError) as caught:
        dlbridge.convert(np.zeros(3), module)
    assert str(caught.value).startswith(f"convert: to module {module.__name__!r}: is a source only (call ")


@pytest.mark.parametrize("make", [
    lambda: bytearray(16), lambda: pandas.DataFrame({"x": [1.0, 2.0]}), lambda: polars.DataFrame({"x": [1.0, 2.0]})],
    ids=["bytearray", "a frame of pandas", "a frame of polars"])
def test_a_result_like_what_is_a_source_only_is_refused_before_the_function_runs(make):
    called = []

    @dlbridge.accepts("numpy", returns="like")
    def double(x):
        called.append(x)
        return x * 2

    with pytest.raises(dlbridge.UnsupportedError) as caught:
        double(make())
    assert not called
    assert caught.value.hint == 'call it with dlbridge.convert(x, "numpy"), or leave out returns='
    assert type(double(dlbridge.convert(make(), "numpy"))) is np.ndarray


def test_out_of_a_tensor_that_a_gradient_needs():
    import paddle

    x, w = paddle.to_tensor(np.ones(3, "f4")), paddle.to_tensor(np.full(3, 2, "f4"))
    x.stop_gradient = False
    product = (x * w).sum()
    dlbridge.convert(np.full(3, 100, "f4"), "paddle", out=w)
    with pytest.raises(RuntimeError, match="inplace"):
        product.backward()


def test_out_of_an_array_that_is_a_value():
    import mlx.core

    with pytest.raises(dlbridge.ConversionError, match="cannot take a copy: mlx computes an array when it is needed"):
        dlbridge.convert(np.zeros(3, "f4"), "mlx", out=mlx.core.zeros(3))


def test_every_fact_has_words_on_the_pages_of_libraries():
    page = load_tool("pages/libraries_page")
    assert {*Arrays._fields} - {"name", "hints"} == {*page.SOURCE_FACTS}
