"""Small arrays of libraries that have more than one way out, each beside its own; goals_all.json has the goals."""

from typing import Any

from bench.rows import Group, Row

GROUP = Group("small arrays of many libraries", (
    *(Row(f"{name} -> numpy", f'dlbridge.convert({source}, to="numpy")', {label: statement})
      for name, source, label, statement in (
          ("ctranslate2.StorageView", "storage", "numpy.asarray", "numpy.asarray(storage)"),
          ("onnxruntime.OrtValue", "value", "OrtValue.numpy", "value.numpy()"),
          ("numkong.Tensor", "vectors", "numpy.asarray", "numpy.asarray(vectors)"),
          ("mlx.core.array", "lazy", "numpy.asarray", "numpy.asarray(lazy)"),
          ("skia.Bitmap", "bitmap", "numpy.asarray", "numpy.asarray(bitmap)"),
          ("pint.Quantity", "quantity", "its magnitude", "numpy.asarray(quantity.magnitude)"),
          ("FixedShapeTensorArray", "tensors", "to_numpy_ndarray", "tensors.to_numpy_ndarray()"),
          ("nanoarrow.Array", "nano", "its buffer", "numpy.asarray(nano.buffer(1))"))),
    Row("arro3.core.Array -> numpy", 'dlbridge.convert(arro, to="numpy")', {
        "to_numpy, which copies": "arro.to_numpy()", "numpy.asarray, which copies": "numpy.asarray(arro)"}),
    *(Row(f"{name}, dtype= -> numpy", f'dlbridge.convert({source}, to="numpy", dtype="float32")', {
        "numpy.frombuffer": f'numpy.frombuffer({source}, dtype="float32")'})
      for name, source in (("zmq.Frame", "frame"), ("bytes", "data"))),
    Row("tree of 4 ndarrays -> torch", 'dlbridge.convert_tree(tree, to="torch")', {
        "a dictionary of from_numpy": "{name: torch.from_numpy(array) for name, array in tree.items()}",
        "4 calls of from_numpy": ", ".join(f"torch.from_numpy(tree[{name!r}])" for name in "abcd")}),
    Row("fields of a point cloud -> torch", 'dlbridge.convert_tree(cloud, to="torch")', {
        "a dictionary of from_numpy": "{name: torch.from_numpy(cloud[name]) for name in cloud.dtype.names}"}),
), {
    "storage": "ctranslate2.StorageView.from_array(numpy.ones((3, 4), 'f4'))",
    "value": "onnxruntime.OrtValue.ortvalue_from_numpy(numpy.ones((3, 4), 'f4'))",
    "vectors": "numkong.zeros((3, 4), dtype='float32')",
    "lazy": "mlx.core.ones((3, 4))",
    "bitmap": "bitmap_of(skia)",
    "quantity": "pint.UnitRegistry().Quantity(numpy.ones(4), 'm')",
    "tensors": "pyarrow.FixedShapeTensorArray.from_numpy_ndarray(numpy.ones((5, 3, 4), 'f4'))",
    "nano": "nanoarrow.Array(pyarrow.array(numpy.arange(8.0)))",
    "arro": "arro3.core.Array.from_arrow(pyarrow.array(numpy.arange(8.0)))",
    "frame": "zmq.Frame(bytes(48))",
    "data": "bytes(48)",
    "tree": "{name: numpy.ones((3, 4), 'f4') for name in 'abcd'}",
    "cloud": "numpy.zeros(2000, numpy.dtype({'names': ['x', 'y', 'z', 'i'], 'formats': ['f4'] * 4, "
             "'offsets': [0, 4, 8, 16], 'itemsize': 32}))",
})


def bitmap_of(skia: Any) -> Any:
    """Make an image of 400 times 300 pixels."""
    made = skia.Bitmap()
    made.allocPixels(skia.ImageInfo.MakeN32Premul(400, 300))
    return made
