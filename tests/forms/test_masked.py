"""Arrays with a mask, where ``to`` names a type that has one: values and mask from library to library."""

import numpy as np
import pytest

import dlbridge

pytestmark = [pytest.mark.needs("torch", "pyarrow"),
              pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype")]
VALUES = np.array([1.0, 2.0, 3.0])
MASK = np.array([True, False, False])


def masked(mask=True):
    return np.ma.MaskedArray(VALUES.copy(), MASK.copy() if mask else np.ma.nomask)


def masked_tensor():
    import torch

    return torch.masked.masked_tensor(torch.from_numpy(VALUES), torch.tensor([False, True, True]))


def nulls():
    import pyarrow

    return pyarrow.array([None, 2.0, 3.0])


def chunks():
    import pyarrow

    return pyarrow.chunked_array([[None], [2.0, 3.0]], pyarrow.float64())


def kinds():
    import pyarrow
    import torch

    return [np.ma.MaskedArray, torch.masked.MaskedTensor, pyarrow.DoubleArray]


def values_of(array):
    """The values, with None where there is none."""
    if hasattr(array, "get_mask"):
        pairs = zip(array.get_data().tolist(), array.get_mask().tolist(), strict=True)
        return [value if valid else None for value, valid in pairs]
    return array.to_pylist() if hasattr(array, "to_pylist") else array.tolist()


@pytest.mark.parametrize("make", [masked, masked_tensor, nulls, chunks])
@pytest.mark.parametrize("place", range(3))
def test_each_into_each_type(make, place):
    kind = kinds()[place]
    made = dlbridge.convert(make(), kind)
    assert isinstance(made, kind)
    assert values_of(made) == [None, 2, 3]
    again = dlbridge.convert(make(), kind, copy=True)
    assert values_of(again) == [None, 2, 3]


@pytest.mark.parametrize("make", [masked, masked_tensor, nulls, chunks])
@pytest.mark.parametrize("to", ["numpy", "torch", "pyarrow", pytest.param("jax", marks=pytest.mark.needs("jax")),
                                "memoryview"])
def test_a_name_refuses_a_mask(make, to):
    array = make()
    if to == {"masked_tensor": "torch", "nulls": "pyarrow", "chunks": "pyarrow"}.get(make.__name__):
        assert values_of(dlbridge.convert(array, to)) == [None, 2, 3]
        return
    with pytest.raises(dlbridge.DLBridgeError, match=r"mask|have no value"):
        dlbridge.convert(array, to)


def test_the_values_are_shared():
    import pyarrow
    import torch

    array = masked()
    lists = dlbridge.convert(array, pyarrow.DoubleArray, readonly="share")
    plan = dlbridge.explain(array, pyarrow.DoubleArray)
    assert plan.leaves["mask"].reason == "its mask gets eight elements in a byte"
    assert lists.to_pylist() == [None, 2, 3]
    source = nulls()
    back = dlbridge.convert(source, np.ma.MaskedArray)
    assert back.data.ctypes.data == source.buffers()[1].address
    assert not back.data.flags.writeable
    assert dlbridge.explain(source, np.ma.MaskedArray).leaves["values"].action == "share"
    assert dlbridge.explain(source, np.ma.MaskedArray).leaves["mask"].reason == "its mask has eight elements in a byte"
    with pytest.raises(dlbridge.CopyRequiredError, match="masked: part mask: its mask has eight elements in a byte"):
        dlbridge.convert(source, np.ma.MaskedArray, copy=False)
    tensor = masked_tensor()
    there = dlbridge.convert(tensor, np.ma.MaskedArray)
    assert there.data.ctypes.data == tensor.get_data().data_ptr()
    assert dlbridge.explain(tensor, np.ma.MaskedArray).leaves["mask"].reason == "its mask says the opposite"
    plan = dlbridge.explain(array, torch.masked.MaskedTensor)
    assert {name: part.reason for name, part in plan.leaves.items()} == dict.fromkeys(
        ("values", "mask"), "a MaskedTensor copies what it is made of")
    with pytest.raises(dlbridge.CopyRequiredError, match="a MaskedTensor copies what it is made of"):
        dlbridge.convert(array, torch.masked.MaskedTensor, copy=False)
    there = dlbridge.convert(array, torch.masked.MaskedTensor)
    array.data[1] = 9
    assert values_of(there) == [None, 2, 3]


def test_own_types_and_arrays_without_a_mask():
    import pyarrow
    import torch

    array, tensor, values = masked(), masked_tensor(), nulls()
    assert dlbridge.convert(array, np.ma.MaskedArray) is array
    assert dlbridge.convert(array, array) is array
    assert dlbridge.convert(tensor, torch.masked.MaskedTensor) is tensor
    assert dlbridge.convert(values, pyarrow.DoubleArray) is values
    copy = dlbridge.convert(array, np.ma.MaskedArray, copy=True)
    copy[1] = 9
    copy.mask[2] = True
    assert array.tolist() == [None, 2, 3]
    for source in masked(False), VALUES, torch.from_numpy(VALUES), pyarrow.array(VALUES), memoryview(VALUES):
        for kind in kinds():
            made = dlbridge.convert(source, kind, readonly="share")
            assert isinstance(made, kind)
            assert values_of(made) == [1, 2, 3]
            assert dlbridge.explain(source, kind, readonly="share").action != "refuse"
    made = dlbridge.convert(VALUES, np.ma.MaskedArray)
    assert type(made) is np.ma.MaskedArray
    assert np.shares_memory(made.data, VALUES)
    with pytest.raises(dlbridge.CopyRequiredError, match="a MaskedTensor copies"):
        dlbridge.convert(VALUES, torch.masked.MaskedTensor, copy=False)


def test_what_numpy_keeps_beside_the_mask_is_kept():
    class Own(np.ma.MaskedArray):
        pass

    for mask in MASK, np.ma.nomask:
        array = np.ma.MaskedArray(VALUES, mask, fill_value=5, hard_mask=True).view(Own)
        for keywords in {}, {"device": "cpu"}, {"readonly": "share"}, {"copy": False}, {"detach": True}:
            assert dlbridge.convert(array, np.ma.MaskedArray, **keywords) is array
        copy = dlbridge.convert(array, np.ma.MaskedArray, copy=True)
        assert (type(copy), copy.fill_value, copy.hardmask) == (Own, 5, True)
        assert not np.shares_memory(copy.data, array.data)
    fields = np.ma.MaskedArray(np.zeros(2, [("a", "f4")]), [(True,), (False,)])
    assert dlbridge.convert(fields, np.ma.MaskedArray, copy=True).tolist() == fields.tolist()


def test_batches():
    for array, kind in zip((masked(), masked_tensor(), nulls()), kinds(), strict=True):
        [made] = dlbridge.prefetch([{"x": array}], kind)
        assert isinstance(made["x"], kind)
        assert values_of(made["x"]) == [None, 2, 3]
        assert made["x"] is not array or kind is kinds()[2]
        assert values_of(dlbridge.convert_tree([array], kind)[0]) == [None, 2, 3]
        for other in kinds():
            assert values_of(dlbridge.convert_tree([array], other)[0]) == [None, 2, 3]
    capsule = VALUES.astype("f4").__dlpack__()          # it gives its memory once
    [made] = dlbridge.prefetch([[capsule]], np.ma.MaskedArray)
    assert values_of(made[0]) == [1, 2, 3]
    [made] = dlbridge.prefetch([[masked_tensor()]], "torch")
    assert values_of(made[0]) == [None, 2, 3]


def test_examples():
    import pyarrow

    for example, kind in zip((masked(), masked_tensor(), nulls()), kinds(), strict=True):
        for array in masked(), masked_tensor(), nulls(), VALUES:
            made = dlbridge.convert(array, example)
            assert isinstance(made, kind)
            assert values_of(made) in ([None, 2, 3], [1, 2, 3])
    result = dlbridge.accepts("numpy", returns="like")(lambda x, y: y * 2)(VALUES, VALUES)
    assert result.tolist() == [2, 4, 6]
    with pytest.raises(dlbridge.ConversionError, match=r"masked: dtype float64: is none of Int64Array \(pass pya"):
        dlbridge.convert(masked(), pyarrow.Int64Array)
    with pytest.raises(dlbridge.CopyRequiredError, match=r"^masked: part mask: its mask has eight elements in a byte"):
        dlbridge.convert(nulls(), np.ma.MaskedArray, copy=False)
    assert dlbridge.explain(masked(), pyarrow.Int64Array).action == "refuse"
    table = np.ma.MaskedArray(np.ones((2, 2)), np.eye(2) == 1)
    with pytest.raises(dlbridge.ConversionError, match=r"masked: shape \(2, 2\): is not of one axis"):
        dlbridge.convert(table, pyarrow.DoubleArray)
    assert dlbridge.explain(table, pyarrow.DoubleArray).action == "refuse"


def test_the_order_of_bytes_is_kept():
    array = np.arange(3, dtype=">f4")
    made = dlbridge.convert(array, np.ma.MaskedArray, copy=False)
    assert made.dtype == array.dtype
    assert np.shares_memory(made.data, array)
    assert dlbridge.explain(array, np.ma.MaskedArray, copy=False).action == "share"


def test_types_that_a_target_has_not():
    import pyarrow
    import torch

    for dtype, kind in (("c8", pyarrow.Int64Array), ("?", pyarrow.Int64Array), ("u1", torch.masked.MaskedTensor),
                        ("c16", torch.masked.MaskedTensor)):
        array = np.ma.MaskedArray(np.ones(2, dtype), [True, False])
        with pytest.raises(dlbridge.ConversionError, match="is none "):
            dlbridge.convert(array, kind)
        assert dlbridge.explain(array, kind).action == "refuse"


def test_what_is_copied_may_be_read_only():
    import torch

    kind = torch.masked.MaskedTensor
    assert values_of(dlbridge.convert(nulls(), kind, readonly="error")) == [None, 2, 3]
    assert dlbridge.explain(nulls(), kind, readonly="error").action == "copy"


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
def test_masked_tensors_that_are_sparse():
    import torch

    ones = torch.eye(2).to_sparse_csr()
    sparse = torch.masked.masked_tensor(ones, ones.to(torch.bool))
    for to in "scipy", "pyarrow", np.ma.MaskedArray:
        with pytest.raises(dlbridge.DLBridgeError):
            dlbridge.convert(sparse, to)
        assert dlbridge.explain(sparse, to).action == "refuse"


def test_a_container_has_plans_of_its_arrays():
    import torch

    for kind in np.ma.MaskedArray, torch.masked.MaskedTensor, torch.sparse_csr:
        assert list(dlbridge.explain({"a": np.ones(2)}, kind).leaves) == ["['a']"]


def test_gradients():
    import torch

    kind = torch.masked.MaskedTensor
    wanted = torch.ones(2, requires_grad=True)
    with pytest.raises(dlbridge.ConversionError, match=r"requires_grad True: would be lost"):
        dlbridge.convert(wanted, kind)
    assert dlbridge.explain(wanted, kind).action == "refuse"
    assert dlbridge.explain(wanted, kind, detach=True).action == "copy"
    made = dlbridge.convert(wanted, kind, detach=True)
    assert not made.requires_grad
    assert dlbridge.explain(wanted, kind, detach=True).action == "copy"
    assert dlbridge.explain(wanted, kind).action == "refuse"


def test_what_is_for_one_array_is_refused():
    for keywords in {"dtype": "float64"}, {"shape": (3,)}, {"out": np.zeros(3)}:
        for array in masked(), masked(False), VALUES.tobytes():
            with pytest.raises(dlbridge.ConversionError, match=r"is for one array, and numpy.ma.*MaskedArray is sev"):
                dlbridge.convert(array, np.ma.MaskedArray, **keywords)


def test_every_copy_is_seen():
    import torch

    kind = torch.masked.MaskedTensor
    for array, count in (VALUES, 1), (masked(), 2):
        with dlbridge.watch() as copies:
            dlbridge.convert(array, kind)
        assert {copy.reason for copy in copies} == {"a MaskedTensor copies what it is made of"}
        assert sum(copy.times for copy in copies) == count
        assert len(dlbridge.explain(array, kind).leaves) == count
        assert dlbridge.explain(array, kind, copy=False).action == "refuse"
    array = masked()
    made = dlbridge.convert(array, np.ma.MaskedArray, copy=True)
    made.mask[1] = True
    assert array.tolist() == [None, 2, 3]


def test_more_axes_and_types():
    import pyarrow
    import torch

    table = np.ma.MaskedArray(np.arange(6, dtype="i4").reshape(2, 3), [[True, False, False]] * 2)
    made = dlbridge.convert(table, torch.masked.MaskedTensor)
    assert made.get_data().tolist() == table.data.tolist()
    assert made.get_mask().tolist() == (~table.mask).tolist()
    assert dlbridge.convert(made, np.ma.MaskedArray).tolist() == table.tolist()
    with pytest.raises(dlbridge.ConversionError, match=r"masked: shape \(2, 3\): is not of one axis, .* \(pass x.ra"):
        dlbridge.convert(table, pyarrow.Int32Array)
    assert dlbridge.convert(table.ravel(), pyarrow.Int32Array).to_pylist() == [None, 1, 2, None, 4, 5]
    number = np.ma.MaskedArray(5.0, True)
    assert dlbridge.convert(number, np.ma.MaskedArray, copy=True).tolist() is None
    with pytest.raises(dlbridge.ConversionError, match="MaskedTensor"):
        dlbridge.convert(np.ma.MaskedArray(np.ones(2, complex), [True, False]), torch.masked.MaskedTensor)
    backwards = dlbridge.convert(masked()[::-1], pyarrow.DoubleArray)
    assert backwards.to_pylist() == [3, 2, None]
    sliced = dlbridge.convert(nulls()[1:], np.ma.MaskedArray)
    assert sliced.tolist() == [2, 3]
    late = pyarrow.array([1.0, 2.0, None, 4.0])[1:]
    assert dlbridge.convert(late, np.ma.MaskedArray).tolist() == [2, None, 4]
    many = np.ma.MaskedArray(np.arange(100.0), np.arange(100) % 7 == 0)
    assert dlbridge.convert(many, pyarrow.DoubleArray).to_pylist() == many.tolist()


def test_masks_that_are_wrong():
    import torch

    fields = np.ma.MaskedArray(np.zeros(2, [("a", "f4")]), [(True,), (False,)])
    with pytest.raises(dlbridge.DLBridgeError):
        dlbridge.convert(fields, torch.masked.MaskedTensor)
    tensor = masked_tensor()
    tensor._masked_mask = torch.tensor([True, False])
    with pytest.raises(dlbridge.ConversionError, match=r"masked: mask \(2,\): is not the shape of the values, \(3,\)"):
        dlbridge.convert(tensor, np.ma.MaskedArray)
    tensor._masked_mask = torch.tensor([1, 0, 1])
    with pytest.raises(dlbridge.ConversionError, match="masked: mask int64: is no type of masks"):
        dlbridge.convert(tensor, np.ma.MaskedArray)
    wanted = torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]), requires_grad=True)
    with pytest.raises(dlbridge.ConversionError, match="requires_grad True"):
        dlbridge.convert(wanted, np.ma.MaskedArray)
    assert dlbridge.convert(wanted, np.ma.MaskedArray, detach=True).tolist() == [1, None]


def test_results_are_like_arrays_with_masks():
    twice = dlbridge.accepts("torch", returns="like")(lambda x: x * 2)
    result = twice(masked(False))
    assert type(result) is np.ma.MaskedArray
    assert result.tolist() == [2, 4, 6]
    with pytest.raises(dlbridge.UnsupportedError, match="hides 1 of 3 values"):
        twice(masked())
    with pytest.raises(dlbridge.UnsupportedError, match="hides 1 of 3 values"):
        dlbridge.convert_tree({"x": masked()}, "torch")
