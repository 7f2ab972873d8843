"""Containers of libraries: files, datasets and batches, whose arrays convert_tree takes one by one."""

import io

import h5py
import netCDF4
import numpy as np
import pytest
import tensordict
import torch
import xarray
import zarr

import dlbridge

TWO, GRID = np.array([1.5, 2.5]), np.arange(6, dtype="float32").reshape(2, 3)


def npz():
    file = io.BytesIO()
    np.savez(file, two=TWO, grid=GRID)
    file.seek(0)
    return np.load(file)


def hdf5():
    file = h5py.File(io.BytesIO(), "w")
    file["two"], file["in/grid"], file["in/words"] = TWO, GRID, ["a", "b"]
    return file


def netcdf():
    dataset = netCDF4.Dataset("memory", "w", memory=4096)
    dataset.createDimension("x", 2)
    dataset.createVariable("two", "f8", ("x",))[:] = TWO
    dataset.createGroup("in").createVariable("two", "f8", ("x",))[:] = TWO
    return dataset


def zarr_group():
    group = zarr.group({})
    group.create_array("two", data=TWO)
    group.create_group("in").create_array("grid", data=GRID)
    return group


def dataset():
    return xarray.Dataset({"two": ("x", TWO), "grid": (("x", "y"), GRID)},
                          coords={"time": ("x", np.array([1, 2], "M8[s]"))})


def datatree():
    return xarray.DataTree(dataset(), children={"in": xarray.DataTree(dataset())})


CONTAINERS = {
    "NpzFile": (npz, {"two": TWO, "grid": GRID}),
    "h5py.File": (hdf5, {"two": TWO, "in": {"grid": GRID, "words": None}}),
    "netCDF4.Dataset": (netcdf, {"two": TWO, "in": {"two": TWO}}),
    "zarr.Group": (zarr_group, {"two": TWO, "in": {"grid": GRID}}),
    "xarray.Dataset": (dataset, {"two": TWO, "grid": GRID}),
    "xarray.DataTree": (datatree, {"two": TWO, "grid": GRID, "in": {"two": TWO, "grid": GRID}}),
}


def check(made, expected, kind):
    assert set(made) == set(expected)
    for name, values in expected.items():
        if isinstance(values, dict):
            check(made[name], values, kind)
        elif values is not None:
            assert isinstance(made[name], kind)
            assert np.asarray(made[name]).tolist() == values.tolist()


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(("target", "kind"), [("torch", torch.Tensor), ("numpy", np.ndarray)])
def test_a_file_or_a_dataset_becomes_a_dictionary(container, target, kind):
    make, expected = CONTAINERS[container]
    made = dlbridge.convert_tree({"data": [make()]}, target)
    assert type(made["data"][0]) is dict
    check(made["data"][0], expected, kind)
    check(dlbridge.accepts(target)(lambda data: data)(make()), expected, kind)


def test_an_error_says_where_in_a_file_the_array_is():
    file = hdf5()
    file["in/deep/records"] = np.zeros(2, [("a", "i4"), ("b", "S3")])
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert_tree({"data": file}, "torch")
    assert caught.value.value == "['data']['in']['deep']['records']['b']"
    with pytest.raises(dlbridge.UnsupportedError, match=r"\(x\['m'\]\): .* hides 1 of 2 values"):
        dlbridge.accepts("numpy")(lambda x: x)({"m": np.ma.array([1, 2], mask=[0, 1])})


def batch():
    return tensordict.TensorDict({"two": torch.from_numpy(TWO), "in": {"grid": torch.from_numpy(GRID)}}, [2])


def test_a_tensordict_stays_one_where_it_can():
    source = batch()
    assert dlbridge.convert_tree(source, "torch") is source
    copied = dlbridge.convert_tree(source, "torch", copy=True)
    assert type(copied) is tensordict.TensorDict
    assert copied.batch_size == source.batch_size
    assert torch.equal(copied["in", "grid"], source["in", "grid"])
    assert copied["two"].data_ptr() != source["two"].data_ptr()
    named = tensordict.TensorDict({"a": torch.ones(2, 3), "text": "b"}, [2], names=["batch"]).lock_()
    made = dlbridge.convert_tree(named, "torch", copy=True)
    assert (type(made), made.names, made.is_locked, made["text"]) == (tensordict.TensorDict, ["batch"], True, "b")
    made = dlbridge.convert_tree(source, "numpy")
    check(made, {"two": TWO, "in": {"grid": GRID}}, np.ndarray)
    assert made["two"].ctypes.data == source["two"].data_ptr()
