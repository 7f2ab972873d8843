"""Tables are containers: a dictionary of their columns by name."""

import datetime

import numpy as np
import pandas
import polars
import polars.testing
import pyarrow
import pytest
import torch
from support.children import in_child

import dlbridge

COLUMNS = {"count": np.arange(4, dtype="int32"), "weight": np.array([0.5, 1.5, 2.5, 3.5]),
           "seen": np.array([True, False, True, True])}
TABLES = {
    "pandas": pandas.DataFrame,
    "pandas of Arrow": lambda columns: pandas.DataFrame(
        {name: pandas.Series(pyarrow.array(values), dtype=pandas.ArrowDtype(pyarrow.array(values).type))
         for name, values in columns.items()}),
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.table,
    "pyarrow batch": lambda columns: pyarrow.RecordBatch.from_pydict(
        {name: pyarrow.array(values) for name, values in columns.items()}),
}
each_table = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)


@each_table
def test_a_table_is_a_dictionary_of_its_columns(make):
    made = dlbridge.convert_tree({"batch": [make(COLUMNS)]}, "torch")["batch"][0]
    assert set(made) >= {"count", "weight"}
    for name, tensor in made.items():
        assert np.array_equal(tensor.numpy(), COLUMNS[name])
        assert tensor.numpy().dtype == COLUMNS[name].dtype


@each_table
def test_columns_are_shared(make):
    table = make({name: values for name, values in COLUMNS.items() if name != "seen"})
    first, second = (dlbridge.convert_tree(table, "torch", readonly="share", copy=False) for _ in range(2))
    assert [first[name].data_ptr() for name in first] == [second[name].data_ptr() for name in first]


@pytest.mark.parametrize("make", [TABLES["pandas"], TABLES["polars"], pyarrow.table])
def test_what_is_no_array_raises_or_passes(make):
    table = make({"name": ["a", "b"], "size": [1, 2]})
    with pytest.raises(dlbridge.DLBridgeError, match=r"^convert_tree: column \['x'\]\['name'\]: "):
        dlbridge.convert_tree({"x": table}, "torch")
    made = dlbridge.convert_tree(table, "torch", columns="pass")
    assert made["size"].tolist() == [1, 2]
    assert list(made["name"]) == list(table["name"])


def test_a_sparse_column_is_named():
    frame = pandas.DataFrame({"dense": [1, 2], "few": pandas.arrays.SparseArray([0, 5])})
    with pytest.raises(dlbridge.UnsupportedError, match=r"^convert_tree: column \['x'\]\['few'\]: .*to_dense\(\)"):
        dlbridge.convert_tree({"x": frame}, "torch")
    with pytest.raises(dlbridge.UnsupportedError, match=r"to_dense\(\)"):
        dlbridge.convert(frame["few"], "torch")


def test_nulls_raise():
    for table in (pyarrow.table({"a": [1, None]}), polars.DataFrame({"a": [True, None]})):
        with pytest.raises(dlbridge.DLBridgeError, match=r"^convert_tree: column \['a'\]: "):
            dlbridge.convert_tree(table, "numpy")
        assert type(dlbridge.convert_tree(table, "numpy", columns="pass")["a"]) is not np.ndarray


def test_columns_in_chunks_are_gathered():
    part = {"a": [1, 2], "b": [True, False]}
    arrow = pyarrow.concat_tables([pyarrow.table(part)] * 2)
    frames = (arrow, polars.concat([polars.DataFrame(part)] * 2, rechunk=False),
              pandas.concat([pandas.DataFrame(part).convert_dtypes(dtype_backend="pyarrow")] * 2))
    for frame in frames:
        made = dlbridge.convert_tree(frame, "torch")
        assert (made["a"].tolist(), made["b"].tolist()) == ([1, 2] * 2, [True, False] * 2)
        assert dlbridge.convert(frame["a"], "numpy").tolist() == [1, 2] * 2
        assert dlbridge.explain(frame["a"], "numpy").reason == "chunks are gathered into one array"
        with pytest.raises(dlbridge.CopyRequiredError, match="gathered by a copy"):
            dlbridge.convert(frame["a"], "numpy", copy=False)


@pytest.mark.parametrize("make", [polars.DataFrame, pyarrow.table, lambda columns: pandas.DataFrame(
    columns, dtype="bool[pyarrow]")], ids=["polars", "pyarrow", "pandas of Arrow"])
def test_bools_are_not_unpacked_where_copies_are_forbidden(make):
    table = make({"a": [True, False]})
    assert dlbridge.convert_tree(table, "torch")["a"].tolist() == [True, False]
    with pytest.raises(dlbridge.DLBridgeError):
        dlbridge.convert_tree(table, "torch", copy=False)


def test_a_name_that_two_columns_have():
    frame = pandas.DataFrame(np.zeros((2, 2)), columns=["a", "a"])
    with pytest.raises(dlbridge.UnsupportedError, match="more than once"):
        dlbridge.convert_tree(frame, "torch")


def test_a_function_is_called_with_the_columns():
    @dlbridge.accepts("torch")
    def total(batch):
        return sum(tensor.sum().item() for tensor in batch.values())

    assert total(polars.DataFrame({"a": [1, 2], "b": [3.0, 4.0]})) == 10
    assert isinstance(dlbridge.convert_tree(pandas.DataFrame({"a": [1.0]}), "torch")["a"], torch.Tensor)


# ---- frames as arrays ------------------------------------------------------------------------------------------------

ROWS = [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
FRAMES = {
    "pandas, one block": (lambda: pandas.DataFrame(np.array(ROWS), columns=["b", "a"]), True),
    "pandas, a block each": (lambda: pandas.concat([pandas.Series([row[axis] for row in ROWS], name="ba"[axis])
                                                    for axis in range(2)], axis=1), None),
    "pandas, nullable": (lambda: pandas.DataFrame(np.array(ROWS), columns=["b", "a"]).astype("Float64"), False),
    "pandas, of Arrow": (lambda: pandas.DataFrame(np.array(ROWS)).astype("float64[pyarrow]"), False),
    "polars": (lambda: polars.DataFrame({"b": [1.0, 2, 3], "a": [4.0, 5, 6]}), False),
    "polars, one block": (lambda: polars.DataFrame(np.asfortranarray(ROWS)), None),
}


@pytest.mark.parametrize(("make", "shared"), FRAMES.values(), ids=FRAMES)
def test_a_frame_of_one_type_is_an_array_of_rows_and_columns(make, shared):
    frame = make()
    array = dlbridge.convert(frame, "numpy")
    assert (array.tolist(), array.dtype) == (ROWS, np.float64)
    assert dlbridge.convert(frame, "torch").tolist() == ROWS
    action = dlbridge.explain(frame, "numpy").action
    assert action == ("share" if shared else "copy") or shared is None
    if action == "share":
        assert not array.flags.writeable
        assert np.shares_memory(dlbridge.convert(frame, "numpy", copy=False), array)
        assert dlbridge.explain(frame, "torch").action == "copy"
    else:
        with pytest.raises(dlbridge.CopyRequiredError):
            dlbridge.convert(frame, "numpy", copy=False)
    columns = dlbridge.convert_tree(frame, "numpy")
    assert [column.tolist() for column in columns.values()] == np.transpose(ROWS).tolist()
    assert dlbridge.accepts("numpy")(type)(frame) is dict


@pytest.mark.parametrize("frame", [
    pandas.DataFrame({"x": [1], "y": [1.5]}), pandas.DataFrame({"x": [1], "y": [True]}), pandas.DataFrame(),
    pandas.DataFrame({"x": ["a"]}), pandas.DataFrame({"x": pandas.to_datetime(["2020-01-01"])}),
    pandas.DataFrame({"x": [1, None]}, dtype="Int64"), polars.DataFrame({"x": [1], "y": [1.5]}), polars.DataFrame(),
    polars.DataFrame({"x": [1, None]}), polars.DataFrame({"x": ["a"]}), polars.DataFrame({"x": [2**100]}),
], ids=lambda frame: f"{type(frame).__module__.partition('.')[0]} {list(frame.dtypes)}")
def test_other_frames_are_sent_to_convert_tree(frame):
    with pytest.raises(dlbridge.ConversionError, match=r"call dlbridge.convert_tree\(x, to, columns="):
        dlbridge.convert(frame, "numpy")


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "int64"])
def test_a_frame_of_one_column_is_shared(dtype):
    frame = pandas.DataFrame({"a": [1, 2]}).astype(dtype)
    array = dlbridge.convert(frame, "numpy", copy=False)
    assert (array.tolist(), array.flags.writeable) == ([[1], [2]], False)
    assert dlbridge.explain(frame, "numpy").action == "share"


def test_bools_of_a_frame():
    assert dlbridge.convert(pandas.DataFrame({"x": [True], "y": [False]}), "torch").tolist() == [[True, False]]
    assert dlbridge.convert(polars.DataFrame({"x": [True], "y": [False]}), "torch").tolist() == [[True, False]]


@in_child(warnings="ignore")
def test_without_pyarrow_what_pandas_holds_in_numpy_works_and_the_rest_says_what_to_install():
    import sys

    sys.modules["pyarrow"] = None
    import pandas
    import pytest

    import dlbridge

    words = pandas.Series(["a", "b"])
    held = pandas.DataFrame({"x": [1.0, 2.0], "n": pandas.array([3, 4], "Int64")})
    assert dlbridge.convert(held["n"], "numpy").tolist() == [3, 4]
    assert dlbridge.convert(held[["x"]], "numpy").tolist() == [[1.0], [2.0]]
    assert dlbridge.convert_tree(held, "numpy")["n"].tolist() == [3, 4]
    mixed = held.assign(s=words)
    assert dlbridge.convert_tree(mixed, "numpy", columns="pass")["s"] is not None
    for refused in (lambda: dlbridge.convert(words, "numpy"), lambda: dlbridge.convert_tree(mixed, "numpy"),
                    lambda: dlbridge.convert(pandas.Series([1, None], dtype="Int64"), "numpy")):
        with pytest.raises(dlbridge.MissingLibraryError, match=r"needs pyarrow .*pip install pyarrow\)$"):
            refused()
    with pytest.raises(dlbridge.ConversionError, match=r'call dlbridge\.convert_tree\(x, to, columns="pass"\)'):
        dlbridge.convert(mixed, "numpy")


def test_an_error_of_the_system_in_an_export_reaches_the_user():
    class Series(pandas.Series):
        def __arrow_c_stream__(self, requested_schema=None):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        dlbridge.convert(Series(["a"]), "numpy")


def test_a_column_that_is_no_array_says_how_it_is_passed_on():
    frame = pandas.DataFrame({"x": [1.0], "s": ["a"]})
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert_tree(frame, "torch")
    assert caught.value.hint.startswith('pass columns="pass" to hand it on, or pass ')
    assert set(dlbridge.convert_tree(frame, "torch", columns="pass")) == {"x", "s"}


def test_polars_takes_a_tensor_for_a_series():
    """By Arrow's interface; of what is read-only it shares the memory."""
    source = np.arange(5.0)
    source.flags.writeable = False
    made = polars.Series(dlbridge.asdlpack(source))
    assert made.to_list() == source.tolist()
    assert dlbridge.convert(made, "numpy", copy=False).ctypes.data == source.ctypes.data


@pytest.mark.parametrize(("make", "words"), [
    (pandas.DataFrame, "'name' of str, 'when' of datetime64[us]"),
    (polars.DataFrame, "'name' of String, 'age' with nulls, 'when' of Datetime(time_unit='us', time_zone=None)"),
    (lambda columns: pandas.DataFrame(columns).convert_dtypes(), "'name' of string, 'age' with missing values, "),
], ids=["pandas", "polars", "pandas' own types"])
def test_a_frame_that_is_no_array_says_which_columns_it_is_about(make, words):
    when = datetime.datetime(2026, 1, 2)
    frame = make({"name": ["a", "b"], "age": [1, None], "size": [1.5, 2.5], "when": [when, when]})
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert(frame, "torch")
    assert caught.value.value.startswith(words)
    assert dlbridge.explain(frame, "torch").hint == 'call dlbridge.convert_tree(x, to, columns="pass")'
    assert set(dlbridge.convert_tree(frame, "torch", columns="pass")) == {"name", "age", "size", "when"}


@pytest.mark.parametrize("used", [True, False])
@in_child
def test_the_same_answers_by_pandas_blocks_and_without(used):
    import numpy as np
    import pandas

    if not used:
        pandas.__version__ = "99.0"
    import dlbridge
    from dlbridge.libraries import pandas_blocks

    array = np.arange(12.0).reshape(4, 3)
    frame = pandas.DataFrame(array)
    taken = dlbridge.convert(frame, "numpy", copy=False)
    assert (taken.tolist(), taken.flags.writeable) == (array.tolist(), False)
    part = dlbridge.convert(frame[1:3], "numpy", copy=False)
    assert part.tolist() == array[1:3].tolist()
    column = dlbridge.convert(frame[1], "numpy", copy=False)
    assert (column.tolist(), column.flags.writeable) == (array[:, 1].tolist(), False)
    assert np.shares_memory(taken, column)
    assert np.shares_memory(part, taken)
    apart = pandas.DataFrame({"a": [1, 2], "b": [3, 4]})
    apart["c"] = [5, 6]
    assert dlbridge.convert(apart, "numpy").tolist() == [[1, 3, 5], [2, 4, 6]]
    for refused in (pandas.DataFrame({"a": [1], "b": [1.5]}), pandas.DataFrame({"a": ["x"]}),
                    pandas.DataFrame(np.array([["a"]], object)), pandas.DataFrame(np.array(["2026"], "M8[s]"))):
        assert dlbridge.explain(refused, "numpy").action == "refuse", refused
    assert dlbridge.convert(pandas.DataFrame(np.zeros((0, 3))), "numpy").shape == (0, 3)
    words = dlbridge.convert_tree({"x": pandas.Series(["a"], dtype=object)}, "numpy")["x"]
    assert isinstance(words, pandas.Series)
    assert pandas_blocks.in_use() == used


def test_words_of_pandas_and_xarray_are_those_of_their_batch():
    """They are handed on, by a copy."""
    import xarray

    holders = {
        "series": pandas.Series(np.array(["", ""], object), dtype=object, copy=False),
        "xarray": xarray.DataArray(np.zeros(2, "U2"), dims="x"),
    }
    for name, holder in holders.items():
        def source(holder=holder):
            for index in range(4):
                holder[:] = str(index)
                yield holder

        found = list(dlbridge.prefetch(source(), "torch"))
        assert [np.asarray(each).tolist() for each in found] == [[str(index)] * 2 for index in range(4)], name


def test_what_convert_takes_whole_has_no_plans_of_parts():
    frame = pandas.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    assert dlbridge.explain(frame, "numpy").leaves == {}
    assert list(dlbridge.explain([frame], "numpy").leaves) == ["[0]['x']", "[0]['y']"]


@pytest.mark.parametrize("table", [
    pandas.DataFrame({"x": [1.5, 2.5]}).assign(y=[3.5, 4.5]), polars.DataFrame({"x": [1.5, 2.5], "y": [3.5, 4.5]})])
def test_a_copy_that_a_library_makes_of_a_table_is_seen_by_who_watches(table):
    with dlbridge.watch() as copies:
        made = dlbridge.convert(table, "numpy")
    assert dlbridge.explain(table, "numpy").action == "copy"
    assert [(each.times, each.nbytes) for each in copies] == [(1, made.nbytes)]


# ---- returns="like" --------------------------------------------------------------------------------------------------

def doubled(x):
    return x * 2


@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
def test_a_series_like_the_first_argument(to):
    function = dlbridge.accepts(to, returns="like")(doubled)
    series = pandas.Series([1, 2], index=["a", "b"], name="n", dtype="int32")
    pandas.testing.assert_series_equal(function(series), series * 2)
    frame = pandas.DataFrame({"x": [1, 2], "y": [3, 4]}, index=["a", "b"], dtype="int32")
    pandas.testing.assert_frame_equal(frame.apply(function), frame * 2)
    series = polars.Series("n", [1, 2], dtype=polars.Int32)
    polars.testing.assert_series_equal(function(series), polars.Series("n", [2, 4], dtype=polars.Int32))
    frame = polars.DataFrame({"x": [1, 2]}, schema={"x": polars.Int32})
    found = frame.select(polars.col("x").map_batches(function, return_dtype=polars.Int32))
    polars.testing.assert_frame_equal(found, polars.DataFrame({"x": [2, 4]}, schema={"x": polars.Int32}))


def test_a_series_of_another_length_and_other_results():
    function = dlbridge.accepts("torch", returns="like")(lambda x: (x.sum(), x[:2], {"k": [x > 1]}, "text"))
    total, head, rest, text = function(pandas.Series([1.0, 2.0, 3.0], index=list("abc"), name="n"))
    assert (total, text) == (6.0, "text")
    pandas.testing.assert_series_equal(head, pandas.Series([1.0, 2.0], name="n"))
    assert rest["k"][0].to_dict() == {"a": False, "b": True, "c": True}
    total, head, rest, text = function(polars.Series("n", [1.0, 2.0, 3.0]))
    assert (total, head.name, head.to_list(), rest["k"][0].to_list()) == (6.0, "n", [1.0, 2.0], [False, True, True])


def test_a_write_to_a_series_changes_nothing_else():
    """As pandas promises, whatever the function gives: its argument, a part of that, or memory that it keeps."""
    series, kept = pandas.Series([1.0, 2.0, 3.0]), torch.zeros(3, dtype=torch.float64)
    for function, keywords in (
        (lambda x: x, {}), (lambda x: x[1:], {"readonly": "share"}), (lambda x: kept, {}), (lambda x: [x, x[1:]], {}),
    ):
        for to in "torch", "numpy":
            made = dlbridge.accepts(to, returns="like", **keywords)(function)(series)
            for each in made if isinstance(made, list) else [made]:
                each.iloc[0] = 9
            assert series.tolist() == [1, 2, 3]
            assert kept.tolist() == [0, 0, 0]
            assert not isinstance(made, list) or made[0].tolist() == [9, 2, 3]


@pytest.mark.parametrize(("library", "dtype"), [
    (polars, "bfloat16"), (polars, "complex64"), (pandas, "bfloat16"), (pandas, "float8_e5m2"),
])
def test_a_type_that_it_lacks(library, dtype):
    function = dlbridge.accepts("torch", returns="like")(lambda x: x.to(getattr(torch, dtype)))
    name = library.__name__
    with pytest.raises(dlbridge.ConversionError, match=f"{name}: dtype {dtype}: is a type that {name} does not"):
        function(library.Series([1.0]))


@pytest.mark.parametrize("library", [pandas, polars])
def test_a_new_series_is_a_copy_in_native_byte_order(library):
    series = library.Series([1.0, 2.0])
    function = dlbridge.accepts("numpy", returns="like")(lambda x: x.astype(">f8"))
    with dlbridge.watch() as copies:
        made = function(series)
    assert made.to_list() == [1, 2]
    assert made.dtype == series.dtype
    assert [(copy.nbytes, copy.hint) for copy in copies] == [(16, 'leave out returns="like"')]
    unasked = dlbridge.accepts("numpy", returns="like", copy=False)(lambda x: pytest.fail("it was called"))
    with pytest.raises(dlbridge.CopyRequiredError, match=r"by a copy of the values, and copy=False forbids it"):
        unasked(series)


def test_what_is_no_series():
    function = dlbridge.accepts("numpy", returns="like")(lambda x: x[:, None])
    with pytest.raises(dlbridge.ConversionError, match=r"result: accepts: shape \(2, 1\): has 2 axes, and pand"):
        function(pandas.Series([1, 2]))
    with pytest.raises(dlbridge.UnsupportedError, match=r'returns "like" of type pandas.*DataFrame'):
        function(pandas.DataFrame({"x": [1]}))
