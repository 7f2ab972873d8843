"""Containers of libraries: files, datasets and batches, whose arrays convert_tree takes one by one."""

import io

import datasets
import gguf
import h5py
import jax.numpy as jnp
import netCDF4
import numpy as np
import pytest
import pyvista
import safetensors.torch
import tensordict
import torch
import torchao.quantization
import transformers
import vtkmodules.vtkCommonDataModel
import vtkmodules.vtkCommonMath
import xarray
import zarr
from support.children import in_child
from transformers.modeling_outputs import BaseModelOutputWithPast

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


# ---- the family of a TensorDict --------------------------------------------------------------------------------------

def two():
    return tensordict.TensorDict({"a": torch.arange(3.0)}, [3])


def viewed():
    with tensordict.set_lazy_legacy(True):
        return two().view(3, 1)


FAMILY = {
    "a stack": (lambda: tensordict.LazyStackedTensorDict.lazy_stack([two(), two()]), [[0, 1, 2], [0, 1, 2]]),
    "a stack of several shapes": (lambda: tensordict.LazyStackedTensorDict.lazy_stack(
        [tensordict.TensorDict({"a": torch.ones(count)}) for count in (2, 1)]), [[1, 1], [1]]),
    "a part": (lambda: two()._get_sub_tensordict(slice(1, 3)), [1, 2]),
    "a view": (viewed, [[0], [1], [2]]),
    "parameters": (lambda: tensordict.TensorDictParams(two()), [0, 1, 2]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", FAMILY)
def test_the_family_of_a_tensordict(kind):
    make, values = FAMILY[kind]
    source = make()
    made = dlbridge.convert_tree({"batch": source}, "numpy", detach=True)["batch"]
    assert type(made) is dict
    several = isinstance(made["a"], list)
    assert ([part.tolist() for part in made["a"]] if several else made["a"].tolist()) == values
    copied = dlbridge.convert_tree(source, "torch", copy=True, detach=True)
    if not several:
        assert dlbridge.convert_tree(source, "torch") is source
        assert isinstance(copied, tensordict.TensorDict)
        assert copied.batch_size == source.batch_size


# ---- weights ---------------------------------------------------------------------------------------------------------

WEIGHTS = {"w": torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "f8": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
           "x": torch.arange(64.0)}


@pytest.mark.parametrize("target", ["numpy", "jax", "torch"])
def test_named_weights_of_safetensors(tmp_path, target):
    safetensors.torch.save_file(WEIGHTS, tmp_path / "a.safetensors")
    with safetensors.safe_open(tmp_path / "a.safetensors", "pt") as file:
        made = dlbridge.convert_tree({"weights": file}, target)["weights"]
        assert type(made) is dict
        for name, tensor in WEIGHTS.items():
            assert dlbridge.asdlpack(made[name]).dtype == dlbridge.asdlpack(tensor).dtype
            assert torch.equal(dlbridge.convert(made[name], "torch").float(), tensor.float())
        if target != "jax":         # which copies what somebody can write
            assert dlbridge.asdlpack(made["x"]).data_ptr == file.get_tensor("x").data_ptr()
        shared = dlbridge.convert_tree(file, "jax", readonly="share")["x"]
        at = file.get_tensor("x").data_ptr()
        assert (shared.unsafe_buffer_pointer() == at) == (at % 64 == 0)


def gguf_file(path):
    rows = np.arange(12, dtype="float32").reshape(3, 4)
    writer, kind = gguf.GGUFWriter(path, "llama"), gguf.GGMLQuantizationType
    writer.add_tensor("f32", rows)
    writer.add_tensor("bf16", gguf.quants.quantize(rows, kind.BF16), raw_dtype=kind.BF16)
    writer.add_tensor("q8", gguf.quants.quantize(np.ones((2, 32), "float32"), kind.Q8_0), raw_dtype=kind.Q8_0)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return gguf.GGUFReader(path), rows


def test_named_weights_of_gguf(tmp_path):
    reader, rows = gguf_file(tmp_path / "a.gguf")
    made = dlbridge.convert_tree(reader, "numpy")
    assert [(name, array.dtype.name, array.shape) for name, array in made.items()] == [
        ("f32", "float32", (3, 4)), ("bf16", "bfloat16", (3, 4)), ("q8", "uint8", (2, 34))]
    assert np.array_equal(made["bf16"].astype("float32"), rows)
    assert {name: array.ctypes.data for name, array in made.items()} == {
        tensor.name: tensor.data.ctypes.data for tensor in reader.tensors}
    assert dlbridge.convert_tree(reader, "jax")["bf16"].dtype == jnp.bfloat16
    tensor = dlbridge.convert_tree(reader.tensors[0], "numpy")
    assert (tensor.name, tensor.data.tolist()) == ("f32", rows.tolist())


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_weight_is_a_tree_of_its_parts():
    layer = torch.nn.Linear(32, 32)
    torchao.quantization.quantize_(layer, torchao.quantization.Int8WeightOnlyConfig())
    weight = layer.weight.detach()
    made = dlbridge.convert_tree({"weight": weight}, "numpy")["weight"]
    assert made["qdata"].dtype == "int8"
    assert {type(part) for part in made.values()} == {np.ndarray}
    assert dlbridge.convert_tree(weight, "torch") is weight
    copied = dlbridge.convert_tree(weight, "torch", copy=True)
    assert type(copied) is type(weight)
    assert torch.equal(copied.dequantize(), weight.dequantize())
    assert copied.qdata.data_ptr() != weight.qdata.data_ptr()
    for verb in (dlbridge.convert, dlbridge.asdlpack):
        with pytest.raises(dlbridge.UnsupportedError, match=r"other tensors .* \(pass x\.dequantize\(\), or call"):
            verb(weight, *["numpy"][verb is dlbridge.asdlpack:])


# ---- what a model gives ----------------------------------------------------------------------------------------------

def test_the_cache_of_a_model_goes_with_its_output():
    cache = transformers.DynamicCache()
    cache.update(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    both = transformers.EncoderDecoderCache(cache, transformers.DynamicCache())
    for given in cache, both:
        output = BaseModelOutputWithPast(last_hidden_state=torch.ones(1, 3), past_key_values=given)
        made = dlbridge.convert_tree(output, "numpy").past_key_values
        assert type(made) is type(given)
        layer, = getattr(made, "self_attention_cache", made).layers
        assert (type(layer.keys), layer.values.tolist()) == (np.ndarray, cache.layers[0].values.tolist())
        assert type(cache.layers[0].keys) is torch.Tensor
        again = dlbridge.convert_tree(made, "torch")
        assert again.get_seq_length() == 3
    assert dlbridge.convert_tree(cache, "torch").layers[0].keys is cache.layers[0].keys


# ---- tables that are read when they are asked ------------------------------------------------------------------------

def test_a_dataset_is_a_table_and_its_column_an_array():
    rows = datasets.Dataset.from_dict({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    assert {name: array.tolist() for name, array in dlbridge.convert_tree(rows, "torch").items()} == {
        "a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}
    chosen = rows.select([2, 0])
    assert dlbridge.convert_tree({"x": chosen["a"]}, "numpy")["x"].tolist() == [3, 1]
    assert dlbridge.convert_tree(chosen, "numpy")["b"].tolist() == [2.5, 0.5]
    grids = datasets.Dataset.from_dict({"v": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]}).with_format("numpy")
    assert dlbridge.convert_tree(grids, "torch")["v"].shape == (2, 2, 2)
    with pytest.raises(dlbridge.UnsupportedError, match=r"\(pass x\[:\]\)"):
        dlbridge.convert(rows["a"], "numpy")


# ---- what is no array, and has a protocol ----------------------------------------------------------------------------

def test_an_object_without_a_buffer_is_handed_on():
    """All classes of VTK have a buffer slot."""
    mesh, pose = vtkmodules.vtkCommonDataModel.vtkPolyData(), vtkmodules.vtkCommonMath.vtkMatrix4x4()
    tree = {"mesh": mesh, "x": np.ones(2), "deep": [pose]}
    made = dlbridge.convert_tree(tree, "torch")
    assert (made["mesh"] is mesh, made["deep"][0] is pose, made["x"].tolist()) == (True, True, [1, 1])
    assert dlbridge.accepts("torch", returns="like")(lambda mesh, x: (mesh, x))(mesh, np.ones(2))[0] is mesh
    ahead, = dlbridge.prefetch([tree], "torch")
    assert ahead["mesh"] is mesh
    for call in (lambda: dlbridge.convert_tree(tree, "torch", others="raise"), lambda: dlbridge.collate([tree, tree])):
        with pytest.raises(dlbridge.UnsupportedError, match="mesh"):
            call()
    with pytest.raises(dlbridge.UnsupportedError, match="gives no buffer: ") as caught:
        dlbridge.convert(mesh, "numpy")
    assert isinstance(caught.value.__cause__, ValueError)
    assert dlbridge.explain(mesh, "numpy").action == "refuse"


def test_a_mesh_is_more_than_the_table_that_it_offers():
    mesh = pyvista.Sphere()
    mesh.point_data["height"] = mesh.points[:, 2]
    assert dlbridge.accepts("torch")(lambda mesh, scale: mesh)(mesh, np.ones(1)) is mesh
    assert dlbridge.convert_tree([mesh], "torch")[0] is mesh
    data = dlbridge.convert_tree(mesh.point_data, "torch")
    assert data["height"].data_ptr() == mesh.point_data["height"].ctypes.data
    with pytest.raises(dlbridge.UnsupportedError, match=r"offers its point data alone \(call dlbridge\.convert_tree"):
        dlbridge.convert(mesh, "numpy")
    # convert_tree() would hand it on.
    assert dlbridge.explain([mesh], "numpy").hint == "it has no arrays and no numbers: pass its items one by one, x[0]"


@in_child(warnings="ignore")
def test_a_source_for_meshes_serves_trees_too():
    import numpy as np
    import pyvista

    import dlbridge

    dlbridge.register_source(pyvista.DataObject, lambda mesh: np.asarray(mesh.points))
    mesh = pyvista.Sphere()
    assert dlbridge.convert_tree([mesh], "numpy")[0].shape == dlbridge.convert(mesh, "numpy").shape == mesh.points.shape
