"""Ragged arrays from library to library: lists of any length each, as values and offsets."""

import gc
import weakref

import numpy as np
import pytest

import dlbridge

pytestmark = pytest.mark.needs("pyarrow", "torch")
ROWS = [[1.0, 2.0], [], [3.0]]


def pyarrow():
    import pyarrow
    return pyarrow


def nested(rows=ROWS, **keywords):
    import torch

    return torch.nested.nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged, **keywords)


def rows_of(tensor):
    return [row.tolist() for row in tensor.unbind()]


def addresses(lists):
    """Where the values and the offsets of an array of lists begin."""
    return lists.values.buffers()[1].address, lists.offsets.buffers()[1].address + lists.offsets.offset * (
        lists.offsets.type.bit_width // 8)


def test_both_ways_without_a_copy():
    lists = pyarrow().array(ROWS, pyarrow().large_list(pyarrow().float64()))
    there = dlbridge.convert(lists, "torch", readonly="share")
    assert rows_of(there) == ROWS
    assert (there.values().data_ptr(), there.offsets().data_ptr()) == addresses(lists)
    back = dlbridge.convert(there, "pyarrow", readonly="share")
    assert back.type == lists.type
    assert back.to_pylist() == ROWS
    assert addresses(back) == addresses(lists)
    back.validate(full=True)


def test_what_must_not_be_written_is_copied():
    lists = pyarrow().array(ROWS, pyarrow().large_list(pyarrow().float64()))
    there = dlbridge.convert(lists, "torch")
    assert not {there.values().data_ptr(), there.offsets().data_ptr()} & set(addresses(lists))
    there.values()[0] = 9
    assert lists.to_pylist() == ROWS
    tensor = nested()
    back = dlbridge.convert(tensor, "pyarrow")
    tensor.values()[0] = 9
    assert back.to_pylist() == ROWS


@pytest.mark.parametrize(("offsets", "to", "made"), [
    ("int32", "pyarrow", "list"), ("int64", "pyarrow", "large_list"),
    ("int32", "LargeListArray", "large_list"), ("int64", "ListArray", "list"), ("uint32", "pyarrow", "list"),
])
def test_offsets_keep_their_width_or_that_of_the_type(offsets, to, made):
    import torch

    to = getattr(pyarrow(), to, to)
    tensor = torch.nested.nested_tensor_from_jagged(
        torch.tensor([1.0, 2.0, 3.0]), torch.from_numpy(np.array([0, 2, 2, 3], offsets)))
    back = dlbridge.convert(tensor, to)
    assert str(back.type).startswith(f"{made}<")
    assert back.to_pylist() == ROWS


@pytest.mark.parametrize("wide", [False, True])
def test_slices(wide):
    """Their offsets begin with more than 0, and the values go on behind the last."""
    kind = pyarrow().large_list if wide else pyarrow().list_
    lists = pyarrow().array([[9], [1, 2], [], [3], [4]], kind(pyarrow().int16()))[1:4]
    there = dlbridge.convert(lists, "torch", readonly="share")
    assert rows_of(there) == [[1, 2], [], [3]]
    assert there.offsets().tolist() == [0, 2, 2, 3]
    assert there.values().data_ptr() == lists.values.buffers()[1].address + 2
    plan = dlbridge.explain(lists, "torch", readonly="share")
    reason = "offsets begin with 1" if wide else "indices of int32 become int64"
    assert plan.leaves["offsets"].reason == plan.reason.removeprefix("of offsets: ") == reason
    assert plan.leaves["values"].action == "share"
    with pytest.raises(dlbridge.CopyRequiredError, match=f"ragged: part offsets: {reason}"):
        dlbridge.convert(lists, "torch", readonly="share", copy=False)
    ending = pyarrow().array([[1, 2], [3], [4]], kind(pyarrow().int16()))[:2]
    assert rows_of(dlbridge.convert(ending, "torch")) == [[1, 2], [3]]
    none = lists[3:]
    assert rows_of(dlbridge.convert(none, "torch")) == []


def test_lists_in_chunks():
    chunks = pyarrow().chunked_array([[[1, 2]], [[], [3]]])
    assert rows_of(dlbridge.convert(chunks, "torch")) == [[1, 2], [], [3]]
    plan = dlbridge.explain(chunks, "torch")
    assert (plan.action, plan.reason) == ("copy", "of values, offsets: it is in several chunks")
    with pytest.raises(dlbridge.CopyRequiredError, match="it is in several chunks, which is a copy"):
        dlbridge.convert(chunks, "torch", copy=False)
    with dlbridge.watch() as copies:
        dlbridge.convert(chunks, "torch", copy=True)
    assert next(iter(copies)).reason == "it is in several chunks"
    one = pyarrow().chunked_array([pyarrow().array([[1, 2], [3]], pyarrow().large_list(pyarrow().int32()))])
    there = dlbridge.convert(one, "torch", readonly="share", copy=False)
    assert (there.values().data_ptr(), there.offsets().data_ptr()) == addresses(one.chunk(0))
    empty = pyarrow().chunked_array([], pyarrow().list_(pyarrow().int32()))
    assert rows_of(dlbridge.convert(empty, "torch")) == []


def test_elements_that_are_arrays():
    import torch

    tensor = torch.nested.nested_tensor_from_jagged(torch.arange(24.0).reshape(4, 3, 2), torch.tensor([0, 1, 4]))
    lists = dlbridge.convert(tensor, "pyarrow", readonly="share")
    assert lists.to_pylist() == rows_of(tensor)
    assert lists.values.values.values.buffers()[1].address == tensor.values().data_ptr()
    back = dlbridge.convert(lists, "torch", readonly="share")
    assert back.values().data_ptr() == tensor.values().data_ptr()
    assert rows_of(back) == rows_of(tensor)
    assert dlbridge.explain(tensor, "pyarrow").shape == (2, None, 3, 2)


def test_the_memory_lives_as_long_as_the_result():
    import torch

    memory = np.array([1.0, 2.0, 3.0])
    values = weakref.ref(memory)
    tensor = torch.nested.nested_tensor_from_jagged(torch.from_numpy(memory), torch.tensor([0, 2, 2, 3]))
    del memory
    lists = dlbridge.convert(tensor, "pyarrow", readonly="share")
    del tensor
    gc.collect()
    assert values() is not None
    assert lists.to_pylist() == ROWS
    del lists
    gc.collect()
    assert values() is None


@pytest.mark.parametrize("rows", [[], [[]], [[], []], [[1.0]], [[], [1.0, 2.0], []]], ids=str)
def test_few_rows(rows):
    lists = pyarrow().array(rows, pyarrow().large_list(pyarrow().float32()))
    there = dlbridge.convert(lists, "torch")
    assert rows_of(there) == rows
    assert dlbridge.convert(there, "pyarrow").to_pylist() == rows


@pytest.mark.parametrize("seed", range(10))
def test_random_rows_bit_for_bit(seed):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 2**32, 50, dtype="uint32").view("float32")        # NaNs as well
    offsets = np.sort(generator.integers(0, 51, 8))
    offsets[[0, -1]] = 0, 50
    lists = pyarrow().LargeListArray.from_arrays(pyarrow().array(offsets), pyarrow().array(values))
    back = dlbridge.convert(dlbridge.convert(lists, "torch"), "pyarrow")
    assert back.values.to_numpy().tobytes() == values.tobytes()
    assert back.offsets.to_pylist() == offsets.tolist()


# ---- which type ------------------------------------------------------------------------------------------------------

def test_what_is_asked_for_says_the_type():
    import torch

    lists = pyarrow().array(ROWS)
    for to in "torch", torch, torch.jagged, torch.Tensor, type(nested()), torch.zeros(2):
        assert dlbridge.convert(lists, to).layout is torch.jagged
    tensor = nested()
    for to in "torch", torch.jagged, type(tensor), torch.Tensor:
        assert dlbridge.convert(tensor, to) is tensor
    assert dlbridge.convert(lists, "pyarrow") is dlbridge.convert(lists, pyarrow().ListArray) is lists
    assert dlbridge.convert(tensor, pyarrow().Array).to_pylist() == ROWS
    copy = dlbridge.convert(tensor, "torch", copy=True)
    assert rows_of(copy) == ROWS
    assert copy.values().data_ptr() != tensor.values().data_ptr()
    assert addresses(dlbridge.convert(lists, "pyarrow", copy=True)) != addresses(lists)
    assert isinstance(dlbridge.convert(lists, pyarrow().LargeListArray), pyarrow().LargeListArray)


def test_what_a_target_has_not_is_refused_with_a_hint():
    import scipy
    import torch

    lists, deep = pyarrow().array(ROWS), pyarrow().array([ROWS, [[4.0]]])
    flat, padded = [1, 2, 3], [[1, 2], [0, 0], [3, 0]]
    moved = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged).transpose(1, 2)
    narrowed = torch.nested.narrow(torch.arange(6.0).reshape(2, 3), 1, torch.tensor([0, 1]), torch.tensor([2, 1]),
                                   layout=torch.jagged)
    for source, to, message, expected in (
        (lists, "numpy", "are lists (pass x.flatten())", flat),
        (lists, "scipy", "is none that scipy has; awkward, pyarrow, tensorflow, torch have it (pass x.flatten(", None),
        (nested(), "numpy", "is a list of tensors (pass x.to_padded_tensor(0.0)", padded),
        (nested(), "scipy", "is none that scipy has; awkward, pyarrow, tensorflow, torch have it (pass x.to_p", None),
        (deep, "torch", "ragged: shape (2, None, None): has 2 ragged axes, and torch takes 1 (pass x.flatten())",
         [*ROWS, [4]]),
        (pyarrow().chunked_array([ROWS, ROWS]), "scipy", "(pass x.combine_chunks().flatten())", None),
        (pyarrow().array([[1.0], None]), "torch", "lists are missing (pass x.drop_null())", [[1]]),
        (pyarrow().array([[1.0, None]]), "torch", "elements have no value (pass pyarrow.ListArray.from_arr", [[1, 0]]),
        (pyarrow().chunked_array([[[1.0, None]], [[2.0]]]), "torch", "(pass pyarrow.ListArray.from_arrays(x.combine_",
         [[1, 0], [2]]),
        (pyarrow().chunked_array([[[1.0]], [None]]), "torch", "(pass x.combine_chunks().drop_null())", [[1]]),
        (pyarrow().array([[[1.0, 2.0], None]], pyarrow().list_(pyarrow().list_(pyarrow().float64(), 2))), "torch",
         "elements have no value (pass x.flatten().drop_null())", [[1, 2]]),
        (pyarrow().array([["a"]]), "torch", "are lists (pass x.flatten())", None),
        (pyarrow().array([[True]]), "torch", "are lists (pass x.flatten())", None),
        (np.ones((2, 2)), torch.jagged, '(pass torch.nested.as_nested_tensor(dlbridge.convert(x, "torch"), layout=t',
         [[1, 1], [1, 1]]),
        (np.ones((2, 2)), pyarrow().ListArray, '(pass pyarrow.array(list(dlbridge.convert(x, "numpy"))))',
         [[1, 1], [1, 1]]),
        (moved, "pyarrow", "axis 2: is the ragged one, which is 1 elsewhere (pass x.transpose(1, 2))",
         [[[1, 1, 1], [1, 1, 1]], [[1, 1, 1]]]),
        (narrowed, "pyarrow", "leave gaps in its memory (pass x.contiguous())", [[0, 1], [4]]),
    ):
        with pytest.raises(dlbridge.DLBridgeError) as caught:
            dlbridge.convert(source, to)
        assert message in str(caught.value)
        assert dlbridge.explain(source, to).reason == caught.value.reason
        hint = caught.value.hint.removeprefix("pass ").partition(", or ")[0]
        if expected is not None:
            names = {"x": source, "dlbridge": dlbridge, "pyarrow": pyarrow(), "torch": torch, "scipy": scipy}
            given = dlbridge.convert(eval(hint, names), to)
            assert (rows_of(given) if hasattr(given, "unbind") else given.tolist()) == expected


def test_gradients():
    tensor = nested([[1.0]], requires_grad=True)
    with pytest.raises(dlbridge.ConversionError, match="ragged: part values: torch: requires_grad True: would be lost"):
        dlbridge.convert(tensor, "pyarrow")
    assert dlbridge.explain(tensor, "pyarrow").action == "refuse"
    assert dlbridge.convert(tensor, "pyarrow", detach=True).to_pylist() == [[1]]


def test_what_is_missing_outside_of_a_slice_does_not_count():
    arrow = pyarrow()
    with pytest.raises(dlbridge.ConversionError, match="null_count 1: elements have no value"):
        dlbridge.convert(arrow.array([[1], [2, None], [None, None]])[1:2], "torch")
    for lists in (arrow.array([[None, 1], [2, 3], [4]])[1:], arrow.array([None, [2, 3], [4], None])[1:3],
                  arrow.array([[2, 3], [4], [None]])[:2]):
        there = dlbridge.convert(lists, "torch", readonly="share")
        assert rows_of(there) == [[2, 3], [4]]
        assert there.values().data_ptr() == lists.flatten().buffers()[1].address + 8 * lists.flatten().offset
    deep = arrow.array([[None, [1]], [[2], []], [[None]]])
    assert dlbridge.convert(deep[1:2], "pyarrow", copy=True).to_pylist() == [[[2], []]]
    with pytest.raises(dlbridge.ConversionError, match="lists are missing"):
        dlbridge.convert(deep[:1], "pyarrow", copy=True)
    with pytest.raises(dlbridge.ConversionError, match="elements have no value"):
        dlbridge.convert(deep[2:], "pyarrow", copy=True)
    deeper = arrow.array([[[1.0, None]], [[2.0]]])[1:]
    assert dlbridge.convert(deeper, "pyarrow", copy=True).to_pylist() == [[[2.0]]]
    fixed = arrow.array([[[1, None], [3, 4]], [[5, 6]]], arrow.list_(arrow.list_(arrow.float64(), 2)))
    assert rows_of(dlbridge.convert(fixed[1:], "torch")) == [[[5, 6]]]
    with pytest.raises(dlbridge.ConversionError, match="elements have no value"):
        dlbridge.convert(fixed, "torch")
    late = arrow.FixedSizeListArray.from_arrays(arrow.array([None, 9, 1, 2, 3, 4]), 2)[1:]
    lists = arrow.ListArray.from_arrays(arrow.array([0, 1, 2], arrow.int32()), late)
    assert rows_of(dlbridge.convert(lists, "torch")) == [[[1, 2]], [[3, 4]]]
    late = arrow.FixedSizeListArray.from_arrays(arrow.array([9, 9, 1, 2, 3, None]), 2)[1:]
    with pytest.raises(dlbridge.ConversionError, match="elements have no value"):
        dlbridge.convert(arrow.ListArray.from_arrays(arrow.array([0, 1, 2], arrow.int32()), late), "torch")
    wrong = lists_with([0, -7, 3], (1.0, None, 3.0))
    with pytest.raises(dlbridge.ConversionError, match="ragged: offsets"):
        dlbridge.convert(wrong[1:], "torch")


def test_elements_of_no_size():
    import torch

    tensor = torch.nested.nested_tensor_from_jagged(torch.ones(3, 0), torch.tensor([0, 2, 2, 3]))
    lists = dlbridge.convert(tensor, "pyarrow")
    assert lists.to_pylist() == [[[], []], [], [[]]]
    assert rows_of(dlbridge.convert(lists, "torch")) == rows_of(tensor)
    assert dlbridge.convert(lists, "pyarrow", copy=True).to_pylist() == lists.to_pylist()


def test_offsets_with_gaps():
    import torch

    offsets = torch.tensor([0, 9, 2, 9, 3])[::2]
    tensor = torch.nested.nested_tensor_from_jagged(torch.arange(3.0), offsets)
    assert dlbridge.explain(tensor, "pyarrow").leaves["offsets"].action == "copy"
    assert dlbridge.convert(tensor, "pyarrow").to_pylist() == [[0, 1], [2]]
    with pytest.raises(dlbridge.CopyRequiredError, match="part offsets"):
        dlbridge.convert(tensor, "pyarrow", copy=False, readonly="share")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_maps_and_dense_arrays_are_what_they_were():
    import torch

    maps = pyarrow().array([[("a", 1)]], pyarrow().map_(pyarrow().string(), pyarrow().int64()))
    with pytest.raises(dlbridge.ConversionError, match="are maps"):
        dlbridge.convert(maps, "torch")
    mixed = pyarrow().array([[[[1], [2]]]], pyarrow().list_(pyarrow().list_(pyarrow().list_(pyarrow().int64()), 2)))
    words = pyarrow().array([["a"]])
    for array, to in (mixed, "torch"), (mixed, torch.jagged), (words, torch.jagged), (words, pyarrow().LargeListArray):
        with pytest.raises(dlbridge.ConversionError, match=r"arrow: format .*are lists"):
            dlbridge.convert(array, to)
    for _ in range(2):
        assert dlbridge.convert(words, pyarrow().ListArray) is words
    assert dlbridge.explain(words, pyarrow().ListArray).action == "return"
    chunks = pyarrow().chunked_array([[1, 2], [3]])
    assert dlbridge.convert(chunks, "torch").tolist() == [1, 2, 3]
    fixed = pyarrow().array([[1, 2], [3, 4]], pyarrow().list_(pyarrow().int64(), 2))
    assert dlbridge.convert(fixed, "torch").tolist() == [[1, 2], [3, 4]]
    strided = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(dlbridge.UnsupportedError, match="is a list of tensors"):
        dlbridge.convert(strided, "pyarrow")


# ---- offsets that are wrong ------------------------------------------------------------------------------------------

def lists_with(offsets, values=(1.0, 2.0, 3.0), kind="i4"):
    """Offsets that are written after pyarrow has looked at them."""
    arrow, memory = pyarrow(), np.zeros(len(offsets), kind)
    values = arrow.array(values)
    of = arrow.list_ if memory.itemsize == 4 else arrow.large_list
    made = arrow.Array.from_buffers(of(values.type), len(offsets) - 1, [None, arrow.py_buffer(memory)],
                                    children=[values])
    memory[:] = offsets
    return made


@pytest.mark.parametrize("kind", ["i4", "i8"])
@pytest.mark.parametrize(("offsets", "message"), [
    ([0, 2, 1, 3], "offsets 1 at 2: is below the offset before"),
    ([0, 1, 4], "offsets 4 at 2: is beyond the 3 elements"),
    ([0, 2, 1_000_000], "offsets 1000000 at 2: is beyond the 3 elements"),
    ([-1, 0, 3], "offsets 0 at 1: is below the offset before"),
    ([-2, -1], "offsets -2 at 0: is beyond the 3 elements"),
    ([0, -1, 3], "offsets 3 at 2: is below the offset before"),
    ([0, -1], "offsets -1 at 1: is beyond the 3 elements"),
])
def test_offsets_that_are_wrong_are_named(offsets, message, kind):
    lists = lists_with(offsets, kind=kind)
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert(lists, "torch")
    assert str(caught.value).startswith(f"ragged: {message}")
    assert dlbridge.explain(lists, "torch").reason == caught.value.reason


def test_offsets_of_tensors_are_looked_at():
    import torch

    values = torch.arange(3.0)
    for offsets, message in (
        ([0, 2, 50], "offsets 50 at 2: is beyond the 3 elements"), ([0, 3, 2], "offsets 2 at 2: is below the"),
        ([[0, 3]], r"offsets \(1, 2\): is not the shape of offsets"),
    ):
        wrong = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 3]))
        wrong._offsets = torch.tensor(offsets)
        with pytest.raises(dlbridge.ConversionError, match=f"ragged: {message}"):
            dlbridge.convert(wrong, "pyarrow")
    late = torch.nested.nested_tensor_from_jagged(values, torch.tensor([1, 2]))
    assert dlbridge.convert(late, "pyarrow").to_pylist() == [[1.0]]


# ---- batches and functions -------------------------------------------------------------------------------------------

def test_tables_and_batches():
    import torch

    table = pyarrow().table({"id": [7, 8, 9], "items": ROWS})
    made = dlbridge.convert_tree(table, "torch")
    assert made["id"].tolist() == [7, 8, 9]
    assert rows_of(made["items"]) == ROWS
    [given] = dlbridge.prefetch([{"x": table["items"]}], "torch")
    assert rows_of(given["x"]) == ROWS
    batch = {"lists": pyarrow().array(ROWS), "words": pyarrow().array([["a"]]), "nested": nested()}
    assert all(value is batch[name] for name, value in dlbridge.convert_tree(batch, "jax").items())
    made = dlbridge.convert_tree(batch, "torch")
    assert rows_of(made["lists"]) == ROWS
    assert made["words"] is batch["words"]
    assert made["nested"] is batch["nested"]
    twice = dlbridge.accepts("torch", returns="like")(lambda x: x * 2)
    result = twice(pyarrow().array(ROWS))
    assert result.to_pylist() == [[2, 4], [], [6]]
    assert type(result) is pyarrow().ListArray
    assert isinstance(dlbridge.accepts("pyarrow", returns="like")(lambda x: x)(nested()), torch.Tensor)


def test_columns_that_a_target_has_not():
    table = pyarrow().table({"id": [7, 8, 9], "items": ROWS, "deep": [[[1]], [], []]})
    for to in "numpy", "jax", "torch":
        with pytest.raises(dlbridge.ConversionError, match="'deep'"):
            dlbridge.convert_tree(table, to, narrow=True)
        made = dlbridge.convert_tree(table, to, columns="pass", narrow=True)
        assert made["deep"] is table["deep"] or made["deep"].equals(table["deep"])
        assert made["id"].tolist() == [7, 8, 9]
