"""Ragged arrays of every library that has some, into each other: awkward, TensorFlow, polars and h5py as well."""

import io
import itertools

import awkward
import h5py
import numpy as np
import polars
import pyarrow
import pytest
import tensorflow
import torch
from support.tools import load_tool

import dlbridge
from dlbridge.libraries.library import libraries

page = load_tool("pages/forms_page")
ROWS = [[1.0, 2.0], [], [3.0]]
DEEP = [[[1.0], [2.0, 3.0]], [], [[], [4.0]]]
TARGETS = [name for name, library in libraries().items()
           if "ragged" in library.forms and library.forms["ragged"].put_together is not None]


def dataset(rows=ROWS, dtype="f8"):
    made = h5py.File(io.BytesIO(), "w").create_dataset("rows", (len(rows),), dtype=h5py.vlen_dtype(dtype))
    for place, row in enumerate(rows):
        made[place] = row
    return made


def lists(rows, value_type=None):
    of = pyarrow.large_list
    return pyarrow.array(rows, of(of(pyarrow.float64())) if rows is DEEP else of(value_type or pyarrow.float64()))


SOURCES = {
    "awkward": lambda rows: awkward.Array(rows),
    "pyarrow": lists,
    "pyarrow, int32": lambda rows: pyarrow.array(rows),
    "pyarrow, chunks": lambda rows: pyarrow.chunked_array([lists(rows)[:1], lists(rows)[1:]]),
    "polars": lambda rows: polars.Series(rows),
    "tensorflow": lambda rows: tensorflow.ragged.constant(rows, dtype="float64"),
    "torch": lambda rows: torch.nested.nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged),
    "h5py": dataset,
}


def rows_of(array):
    if isinstance(array, torch.Tensor):
        return [row.tolist() for row in array.unbind()]
    return array.to_list() if hasattr(array, "to_list") else array.to_pylist()


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_each_into_each_other(source, to):
    before = SOURCES[source](ROWS)
    after = dlbridge.convert(before, to)
    assert rows_of(after) == ROWS
    assert rows_of(dlbridge.convert(before, to, copy=True)) == ROWS
    if source in libraries():
        again = dlbridge.convert(after, source) if source in TARGETS else None
        assert again is None or rows_of(again) == ROWS


@pytest.mark.parametrize("to", [name for name in TARGETS if name != "torch"])
@pytest.mark.parametrize("source", [name for name in SOURCES if name not in ("torch", "h5py")])
def test_lists_in_lists(source, to):
    assert rows_of(dlbridge.convert(SOURCES[source](DEEP), to)) == DEEP


def parts(array):
    """The addresses of the values and of the offsets."""
    if isinstance(array, torch.Tensor):
        return array.values().data_ptr(), array.offsets().data_ptr()
    if isinstance(array, awkward.Array):
        return array.layout.content.data.ctypes.data, array.layout.offsets.data.ctypes.data
    if isinstance(array, tensorflow.RaggedTensor):
        return tuple(np.asarray(part).ctypes.data for part in (array.flat_values, array.row_splits))
    array = array.to_arrow() if isinstance(array, polars.Series) else array
    return array.values.buffers()[1].address, array.offsets.buffers()[1].address


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("source", ["awkward", "pyarrow", "polars", "tensorflow", "torch"])
def test_explain_says_what_is_shared(source, to):
    before = SOURCES[source](ROWS)
    plan = dlbridge.explain(before, to, readonly="share")
    after = dlbridge.convert(before, to, readonly="share")
    if source == to:
        assert plan.action == "return"
        assert after is before
        return
    shared = [there == here for there, here in zip(parts(after), parts(before), strict=True)]
    assert shared == [plan.leaves[name].action == "share" for name in ("values", "offsets")]
    assert all(shared) or to == "tensorflow"       # which wants memory that is aligned


def test_a_file_is_read_row_by_row():
    plan = dlbridge.explain(dataset(), "awkward")
    assert (plan.action, plan.reason) == ("copy", "of values, offsets: it is read row by row")
    with pytest.raises(dlbridge.CopyRequiredError, match="it is read row by row, which is a copy"):
        dlbridge.convert(dataset(), "awkward", copy=False)
    for rows in [], [[]], [[1, 2]]:
        assert rows_of(dlbridge.convert(dataset(rows, "i2"), "awkward")) == rows
    made = dlbridge.convert(dataset(dtype="f4"), "torch")
    assert made.dtype is torch.float32
    with dlbridge.watch() as copies:
        dlbridge.convert(dataset(), "torch", copy=True)
    assert sum(copy.times for copy in copies) == 2
    for kind in ">i2", ">f8", "<u4":
        rows = dataset([[1, 2], [], [513]], kind)
        assert rows_of(dlbridge.convert(rows, "torch")) == [[1, 2], [], [513]]
    for kind in h5py.vlen_dtype("f4"), h5py.string_dtype(), np.dtype([("a", "f4")]), np.dtype(("f4", (2,))):
        with pytest.raises(dlbridge.UnsupportedError, match="offers no array protocol"):
            dlbridge.convert(dataset([], kind), "torch")
    closed = dataset()
    closed.file.close()
    with pytest.raises(dlbridge.UnsupportedError, match="offers no array protocol"):
        dlbridge.convert(closed, "torch")


def test_each_part_of_chunks_is_seen():
    for to in "awkward", "tensorflow", "torch":
        source = pyarrow.chunked_array([lists(ROWS)[:1], lists(ROWS)[1:]])
        with dlbridge.watch() as copies:
            dlbridge.convert(source, to)
        assert sum(copy.times for copy in copies) == 2
        assert [part.action for part in dlbridge.explain(source, to).leaves.values()] == ["copy", "copy"]


def test_a_series_in_chunks_stays_as_it_is():
    """polars puts the chunks of the series together that it is asked of."""
    one = polars.Series(ROWS)
    series = polars.concat([one, one], rechunk=False)
    plan = dlbridge.explain(series, "torch")
    assert (plan.action, plan.reason) == ("copy", "of values, offsets: it is in several chunks")
    made = dlbridge.convert(series, "torch")
    made.values()[:] = 7
    assert series.n_chunks() == 2
    assert series.to_list() == ROWS * 2


@pytest.mark.parametrize("splits", [[0, 22, 30], [16, 22, 30], [16, 22, 160]])
def test_splits_of_a_part_of_the_values(splits):
    """Slices of TensorFlow's are copies, and views of its memory are not."""
    before = tensorflow.RaggedTensor.from_row_splits(np.arange(160.0), np.array(splits), validate=False)
    plan = dlbridge.explain(before, "torch", readonly="share")
    after = dlbridge.convert(before, "torch", readonly="share")
    assert rows_of(after) == [list(map(float, range(*span))) for span in itertools.pairwise(splits)]
    assert plan.leaves["values"].action == "share"
    assert after.values().data_ptr() == np.asarray(before.flat_values).ctypes.data + 8 * splits[0]


# ---- awkward ---------------------------------------------------------------------------------------------------------

def test_awkward_takes_arrays_and_gives_them():
    values = np.arange(6.0).reshape(2, 3)
    made = dlbridge.convert(values, "awkward")
    assert made.to_list() == values.tolist()
    assert np.shares_memory(made.layout.data, values)
    for to in "numpy", "torch", "awkward":
        assert dlbridge.convert(made, to).tolist() == values.tolist()
    assert dlbridge.convert(made, "numpy").ctypes.data == values.ctypes.data
    regular = awkward.to_regular(awkward.Array([[1, 2], [3, 4]]))
    assert dlbridge.convert(regular, "torch").tolist() == [[1, 2], [3, 4]]
    backwards = dlbridge.convert(values[::-1], "awkward")
    assert backwards.to_list() == values[::-1].tolist()
    assert np.shares_memory(backwards.layout.data, values)
    assert dlbridge.convert(values.astype(">f8"), "awkward").to_list() == values.tolist()
    assert dlbridge.convert(np.float32(3) * np.ones(2, "f4"), awkward.Array).to_list() == [3, 3]
    with pytest.raises(dlbridge.ConversionError, match="shape"):
        dlbridge.convert(np.array(1.0), "awkward")
    assert dlbridge.convert(awkward.Array([]), "torch").tolist() == []
    assert rows_of(dlbridge.convert(awkward.Array([[], []]), "torch")) == [[], []]
    frozen = np.arange(3)
    frozen.flags.writeable = False
    assert dlbridge.convert(frozen, "awkward").to_list() == [0, 1, 2]


def test_elements_that_are_arrays():
    before = awkward.to_regular(awkward.Array([[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]]), axis=2)
    tensor = dlbridge.convert(before, "torch")
    assert rows_of(tensor) == before.to_list()
    assert tuple(tensor.values().shape) == (3, 2)
    for to in TARGETS:
        assert rows_of(dlbridge.convert(tensor, to)) == before.to_list()


@pytest.mark.parametrize(("array", "hint", "expected"), [
    (awkward.Array(ROWS)[[2, 0]], "pass awkward.to_packed(x)", [[3.0], [1.0, 2.0]]),
    (awkward.Array([[1.0, None]]), "pass awkward.flatten(x, axis=None)", [1]),
    (awkward.Array(DEEP), "pass awkward.flatten(x, axis=None)", [1, 2, 3, 4]),
    (awkward.Array([["a"]]), "it has strings", None),
    (awkward.Array([[{"x": 1}]]), "pass its fields one by one, x['x']", [[1]]),
    (awkward.Array(awkward.contents.RegularArray(awkward.Array([*ROWS, []]).layout, 2)),
     "pass awkward.from_regular(x, axis=None)", None),
    (polars.Series([[1.0], None]), "pass x.drop_nulls()", [[1]]),
    (polars.Series([[1.0, None]]), "pass x.list.eval(polars.element().fill_null(0))", [[1, 0]]),
    (polars.Series([["a"]]), "pass x.explode()", None),
    (polars.Series([[1]], dtype=polars.List(polars.Int128)), "pass x.explode()", None),
    (polars.Series([[[1.0, None]], []]), "pass x.explode()", None),
    (polars.Series([[[1.0, 2.0], None]], dtype=polars.List(polars.Array(polars.Float64, 2))),
     "pass x.list.drop_nulls()", [[[1, 2]]]),
    (polars.Series([[True]]), "pass x.explode()", None),
    (tensorflow.ragged.constant(DEEP), "pass x.to_tensor()", [[[1, 0], [2, 3]], [[0, 0]] * 2, [[0, 0], [4, 0]]]),
])
def test_what_is_no_list_of_numbers_is_refused_with_a_hint(array, hint, expected):
    with pytest.raises(dlbridge.DLBridgeError) as caught:
        dlbridge.convert(array, "torch")
    assert caught.value.hint.startswith(hint)
    if expected is not None:
        told = eval(hint.removeprefix("pass ").removeprefix("its fields one by one, "),
                    {"x": array, "awkward": awkward, "polars": polars})
        given = dlbridge.convert(told, "torch")
        assert (rows_of(given) if given.layout is torch.jagged else given.tolist()) == expected


def test_awkward_has_more_than_lists_of_numbers():
    traced = awkward.Array(awkward.Array(ROWS).layout.to_typetracer())
    word = awkward.contents.NumpyArray(np.frombuffer(b"abcd", "u1"), parameters={"__array__": "byte"})
    words = awkward.contents.RegularArray(
        awkward.contents.RegularArray(word, 2, parameters={"__array__": "bytestring"}), 2)
    for array in traced, awkward.Array(words):
        with pytest.raises(dlbridge.UnsupportedError, match="offers no array protocol"):
            dlbridge.convert(array, "torch")
    missing = awkward.Array([[1, None]])
    assert dlbridge.convert(missing, "awkward", copy=True).to_list() == [[1, None]]
    assert dlbridge.explain(missing, "awkward", copy=True).action == "copy"
    assert dlbridge.explain(missing, "torch", copy=True).action == "refuse"
    picked = awkward.Array(ROWS)[[2, 0]]
    assert dlbridge.convert(picked, "awkward", device="cpu") is picked
    tensor = torch.nested.nested_tensor_from_jagged(torch.arange(3.0), torch.tensor([0, 9, 2, 9, 3])[::2])
    plan = dlbridge.explain(tensor, "awkward")
    assert plan.reason == "of offsets: they leave gaps"
    assert dlbridge.convert(tensor, "awkward").to_list() == [[0, 1], [2]]
    with pytest.raises(dlbridge.CopyRequiredError, match="part offsets: they leave gaps"):
        dlbridge.convert(tensor, "awkward", copy=False)


def test_explain_knows_what_a_target_has_not():
    bools = dataset([[True]], "?")
    with pytest.raises(dlbridge.ConversionError, match="bool"):
        dlbridge.convert(bools, "pyarrow")
    assert dlbridge.explain(bools, "pyarrow").action == "refuse"


def test_text_is_handed_on_in_a_batch():
    words = awkward.Array(["a", "bc"])
    assert dlbridge.convert_tree({"x": words}, "torch")["x"] is words
    some = pyarrow.array([["a"]], pyarrow.list_(pyarrow.field("item", pyarrow.string(), nullable=False)))
    assert dlbridge.convert_tree({"x": some}, "numpy")["x"] is some


@pytest.mark.parametrize("name", ["awkward", "pyarrow", "tensorflow", "torch"])
def test_results_are_like_the_first_argument(name):
    twice = dlbridge.accepts("awkward", returns="like")(lambda x: x * 2)
    before = SOURCES[name](ROWS)
    after = twice(before)
    assert type(after) is type(before)
    assert rows_of(after) == [[2, 4], [], [6]]
    total = dlbridge.accepts("awkward", returns="like")(lambda x: np.ones(2))(before)
    assert type(total).__module__.partition(".")[0] == name
    assert np.asarray(total).tolist() == [1, 1]
