"""Libraries whose arrays are never taken as they are, and what to do instead; and those with one fact only."""

import numbers
import operator
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from dlbridge._core.system_memory import is_file_for_reading
from dlbridge.libraries.library import Arrays, Copied, Fact, Form, Library, keep_as_dict
from dlbridge.libraries.profiles import IN_TREE, OF_POINTER

AS_NUMPY = {"": "pass numpy.asarray(x)"}
AS_LIST = {"": "pass numpy.array(list(x)), if they are numbers"}
# What is not in memory, or not yet, is not brought there unasked.
INDEXED = {"": "pass x[...]"}
COORDINATES = "pass shapely.get_coordinates(x)"
# The bytes of each row of an image of Qt, which does not know who uses them.
ROWS = "keep x and call dlbridge.convert({}, to, shape=(x.height(), x.bytesPerLine()))"


IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp", ".ppm")


def hint_for_text(text: Any) -> str:
    """Of a string, or of a path: what reads the file, if it names one."""
    ending = os.path.splitext(text)[1].lower()
    if ending in (".npy", ".npz"):
        return "it names a file: pass numpy.load(x)"
    if ending in IMAGES:
        return "it names a file: pass PIL.Image.open(x)"
    if os.path.isfile(text) or not isinstance(text, str):
        return "it names a file: pass pathlib.Path(x).read_bytes()"
    return "pass x.encode()"


def hint_for_items(sequence: Any) -> str:
    """Of a list or a tuple without arrays."""
    first = next(iter(sequence), None)
    if isinstance(first, (list, tuple)) and not all(isinstance(item, (list, tuple)) for item in sequence):
        return "its items are of different depths"
    if isinstance(first, (list, tuple)) and len({*map(len, sequence)}) > 1:
        return "pass all side by side, numpy.concatenate(x)"
    if any(item is None for item in sequence):
        return "pass numpy.array(x, dtype=float), where None becomes NaN"
    if any(isinstance(item, str) for item in sequence):
        return "it has strings, which no array library has"
    if all(isinstance(item, (numbers.Number, np.generic, list, tuple)) for item in sequence):
        return AS_NUMPY[""]
    return "it has no arrays and no numbers: pass its items one by one, x[0]"


def hint_for_group(group: Any) -> str:
    """Of something that has arrays by name: the code for the first, or for the first group in it."""
    name = next((name for name, member in group.items() if hasattr(member, "shape")), None)
    if name is not None:
        return f"pass its arrays one by one, x[{name!r}][...]"
    name = next(iter(group), None)
    return "it has no arrays" if name is None else f"pass the arrays of x[{name!r}]"


def hint_for_variables(variables: Any, code: str) -> str:
    """Of something that has variables by name: the code for the first of them."""
    name = next(iter(variables), None)
    return "it has no variables" if name is None else f"pass its variables one by one, {code.format(name)}"


def hint_for_arrays(sequence: Any) -> str:
    """Of a list or a tuple with arrays."""
    detach = ", detach=True" if any(getattr(item, "requires_grad", False) for item in sequence) else ""
    return f"call dlbridge.convert_tree(x, to{detach})"


def hint_for_cdata(pointer: Any) -> str:
    """Of cffi: an array says how many elements it has, and a pointer does not."""
    try:
        return "pass ffi.buffer(x)" if len(pointer) else "it has no elements"
    except TypeError:
        return OF_POINTER.format('int(ffi.cast("uintptr_t", x))')


def hint_for_java(thing: Any) -> str:
    """Of what is not primitive: an array of objects, a buffer that is not direct, a list."""
    if hasattr(thing, "hasArray"):
        return "pass x.array()" if thing.hasArray() else "pass a direct buffer"
    if hasattr(thing, "__len__") and any(hasattr(item, "__len__") for item in thing):
        return "pass all side by side, numpy.concatenate([*map(numpy.array, x)])"
    return "pass numpy.array(list(x)), if they are numbers"


def hint_for_graph(values: Any) -> str:
    """Of a vector or a matrix of GraphBLAS, in which values may be missing."""
    size = values.size if hasattr(values, "size") else values.nrows * values.ncols
    return "pass x.to_dense()" if values.nvals == size else "pass x.to_dense(0), where what is missing becomes 0"


def hint_for_root(thing: Any) -> str | None:
    """Of what is in a file of ROOT; the ``__array__`` of some refuses."""
    ways = [name for name in ("values", "array", "arrays") if callable(getattr(thing, name, None))]
    ways = [name for name in ways if name != "values" or not hasattr(thing, "keys")]
    return f"pass x.{ways[0]}()" if ways else None


def hint_for_volume(image: Any) -> str:
    """An image of SimpleITK; of a map of labels it would end the process."""
    labels = image.GetPixelIDTypeAsString().startswith("label")
    return f"pass SimpleITK.GetArrayFromImage({'SimpleITK.LabelMapToLabel(x)' if labels else 'x'})"


def copy_of_java(array: Any) -> Any:
    """The numbers of an array of Java now. Its buffer is let go of at once, or the next export would be the same."""
    try:
        return Copied(np.array(memoryview(array)))
    except (BufferError, TypeError):
        return None             # it has objects


def is_upside_down(plane: Any) -> bool:
    """Of PyAV: a flipped image, whose buffer would be read beyond its memory."""
    return bool(plane.line_size < 0)


def has_no_dlpack_type(plane: Any) -> bool:
    """Of PyAV, which was asked and refused: floats, the other byte order, packed bits, mosaics of colours."""
    return not is_upside_down(plane)


asked: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def is_for_reading(mapped: Any, address: int) -> bool:
    """Whether a mapping is of a file, for reading. The system takes a millisecond to say it, and is asked once."""
    if type(mapped) is not sys.modules["mmap"].mmap:        # objects of a subclass may count as equal
        return is_file_for_reading(address)
    if mapped not in asked:
        asked[mapped] = is_file_for_reading(address)
    return asked[mapped]


def read(member: Any) -> Any:
    """What is in a file: an array is read, and a group stays one."""
    return member[...] if hasattr(member, "shape") else member


def parts_of_group(group: Any) -> dict[str, Any]:
    return {name: read(member) for name, member in group.items()}


def form_of_dataset(dataset: Any) -> str | None:
    if not dataset or dataset.ndim != 1:
        return None                 # its file is closed
    of_rows = sys.modules["h5py"].check_vlen_dtype(dataset.dtype)
    return "ragged" if isinstance(of_rows, np.dtype) and of_rows.kind in "biufc" and of_rows.subdtype is None else None


def parts_of_rows(dataset: Any) -> tuple[tuple[int, ...], list[Any]]:
    """All rows side by side, which HDF5 has one by one. Those of the other byte order say that they are of this one."""
    of_rows = sys.modules["h5py"].check_vlen_dtype(dataset.dtype)
    rows = [row if row.dtype == of_rows else row.view(of_rows) for row in dataset[...]]
    offsets = np.zeros(len(rows) + 1, "int64")
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return (), [np.concatenate([np.empty(0, of_rows), *rows]), (offsets,)]


def parts_of_netcdf(dataset: Any) -> dict[str, Any]:
    return parts_of_group({**dataset.variables, **dataset.groups})


def parts_of_dataset(dataset: Any) -> dict[str, Any]:
    """The variables, without the coordinates."""
    return {name: variable.data for name, variable in dataset.data_vars.items()}


def parts_of_tree(tree: Any) -> dict[str, Any]:
    return {**parts_of_dataset(tree), **tree.children}


def parts_of_tensordict(container: Any) -> dict[str, Any]:
    """The values by their keys; where the parts of a stack have several shapes, a list of them."""
    parts = {}
    for key in container.keys():            # noqa: SIM118 (a TensorDict is walked by its first axis)
        try:
            parts[key] = container.get(key)
        except RuntimeError:
            parts[key] = container.get(key, as_list=True)
    return parts


def tensordict_of(container: Any, parts: dict[str, Any]) -> Any:
    """A TensorDict of torch's tensors and what else was in it; the arrays of others have no place in one."""
    library = sys.modules["tensordict"]
    kinds = sys.modules["torch"].Tensor, library.TensorDictBase
    before = parts_of_tensordict(container)
    if any(isinstance(before[name], (*kinds, list)) and not isinstance(part, kinds) for name, part in parts.items()):
        return parts
    if type(container) is not library.TensorDict:       # a stack, a view, parameters: they say what they were made of
        return library.TensorDict(parts, container.batch_size)
    made = container.clone(False).unlock_()
    for name, part in parts.items():
        made.set(name, part)
    return made.lock_() if container.is_locked else made


def parts_of_safe_open(file: Any) -> dict[str, Any]:
    return {name: file.get_tensor(name) for name in file.keys()}        # noqa: SIM118 (it has no __iter__)


LAZY = "reads an array when it is asked"
NO_TORCH = "seen in 2026.9.0", "has no arrays of torch in it"

# Libraries of which only this is known: what to do instead, by the type.
INSTEAD: dict[str, dict[str, str | Callable[[Any], str | None]]] = {
    "SimpleITK": {"Image": hint_for_volume},
    "_io": {"BytesIO": "pass x.getbuffer()", "TextIOWrapper": "pass x.buffer.read()",
            **dict.fromkeys(("BufferedReader", "BufferedRandom", "FileIO"), "pass x.read()")},
    "casadi": {"DM": "pass x.full()", **dict.fromkeys(("SX", "MX"), "it is a symbol, and has no numbers")},
    "cv2": {"UMat": "pass x.get()"},
    "cvxpy": {"Expression": "pass x.value, once it is solved"},
    "datetime": {"date": "pass numpy.datetime64(x)", "timedelta": "pass numpy.timedelta64(x)"},
    "decimal": {"Decimal": "pass numpy.float64(x)"},
    "deltalake": {"DeltaTable": "call dlbridge.convert_tree(x.to_pyarrow_table(), to)"},
    "fractions": {"Fraction": "pass numpy.float64(x)"},
    "graphblas": {"BaseType": hint_for_graph},
    "highdicom": {"Volume": "pass x.array"},
    "matplotlib": {"FigureCanvasBase": "call x.draw() and pass x.buffer_rgba()",
                   "Figure": "call x.canvas.draw() and pass x.canvas.buffer_rgba()"},
    "mpmath": {"_matrix": "pass numpy.array(x.tolist(), dtype=float)"},
    "msgpack": {"ExtType": "pass x.data"},
    "multiprocessing": {"SharedMemory": "pass x.buf", "SynchronizedArray": "pass x.get_obj()"},
    "obspy": {"Trace": "pass x.data", "Stream": "call dlbridge.convert_tree([trace.data for trace in x], to)"},
    "onnx": {"TensorProto": "pass onnx.numpy_helper.to_array(x)"},
    "openmm": {"Quantity": "pass numpy.array(x.value_in_unit(x.unit))"},
    "pathlib": {"PurePath": hint_for_text},
    "pydicom": {"Dataset": "pass x.pixel_array"},
    "pygame": {"Surface": 'pass x.get_view("3"), or x.get_buffer() for its bytes'},
    "rasterio": {"DatasetBase": "pass x.read()"},
    "uproot": {"*": hint_for_root},
}

LIBRARIES = (
    Library(name="av", arrays=(
        *(Arrays(name, {"": "pass x.to_ndarray()"}) for name in ("VideoFrame", "AudioFrame")),
        Arrays("VideoPlane", {
            "is_upside_down": "pass the frame's to_ndarray()",
            "has_no_dlpack_type": 'call dlbridge.convert(x, to, dtype="uint8", shape=(x.height, -1)) for its bytes, or '
                                  "name the dtype of its format"},
            bytes_in_buffer=Fact(lambda plane: plane.line_size > 0, "PyAV#2217", "exports few formats by DLPack"),
            refused=(Fact(is_upside_down, "seen in 18.1", "begins at its last line"),
                     Fact(has_no_dlpack_type, "PyAV#2217", "has a format that its library does not export"))),
    )),
    *(Library(name=name, arrays=tuple(Arrays(kind, {"": hint}) for kind, hint in hints.items()))
      for name, hints in INSTEAD.items()),
    Library(
        name="builtins",
        arrays=(
            *(Arrays(name, AS_NUMPY) for name in ("range", "int", "float", "complex")),
            *(Arrays(name, {"": hint_for_items, "tree": hint_for_arrays,
                            "pyarrow": "pyarrow.Array._import_from_c_capsule(*x)"}) for name in ("list", "tuple")),
            *(Arrays(name, AS_LIST) for name in (
                "set", "frozenset", "generator", "map", "filter", "zip", "enumerate", "reversed", "list_iterator",
                "tuple_iterator", "range_iterator", "dict_values", "dict_keys", "dict_items")),
            Arrays("str", {"": hint_for_text}),
            *(Arrays(name, {"": "it is a function: pass what it gives"}) for name in (
                "function", "builtin_function_or_method", "method", "method-wrapper")),
            Arrays("module", {"": "pass an array"}),
            Arrays("dict", {"tree": "call dlbridge.convert_tree(x, to), or pass its values one by one",
                            "": "it has no arrays: pass its values one by one"}),
            Arrays("NoneType", {"": "there is nothing to convert: is a return statement missing?"}),
            Arrays("type", {"": "pass an instance, not the class"}),
            Arrays("PyCapsule", {
                "pyarrow": "pyarrow.ChunkedArray._import_from_c_capsule(x).combine_chunks()",
                "+s": 'call dlbridge.convert_tree(pyarrow.RecordBatchReader._import_from_c_capsule({x}), to, '
                      'columns="pass")'}),
            Arrays("safe_open", {"": IN_TREE}, container=Fact(
                (parts_of_safe_open, keep_as_dict), "seen in 0.8.0", "gives its tensors by their names alone")),
            *(Arrays(name, constant=Fact(True, "seen in polars 2.1.0", "is what an ndarray of polars lies on"))
              for name in ("PySeries", "PyDataFrame")),
            Arrays("tensorflow_wrapper", constant=Fact(True, "seen in TensorFlow 2.21", "is the tensor that an "
                                                       "ndarray of TensorFlow lies on")),
        ),
    ),
    Library(
        name="astropy",
        arrays=(
            Arrays("Table", {"": lambda table: f"pass its columns one by one, x[{table.colnames[0]!r}]"}),
            Arrays("_ImageBaseHDU", {"": "pass x.data"}),
            Arrays("MaskedNDArray", {"mask": "pass x.filled(0), or x.unmasked if the mask does not matter"},
                   masked=Fact(lambda: operator.attrgetter("mask"), "seen in 8.0.2",
                               "keeps a mask beside the values that it exports")),
        ),
    ),
    Library(
        name="weakref",
        arrays=tuple(
            Arrays(name, gives=Fact(lambda proxy: proxy.__init__.__self__, "seen in 3.11", "does not keep its object"))
            for name in ("ProxyType", "CallableProxyType")),
    ),
    Library(name="mmap", arrays=(Arrays("mmap", constant=Fact(
        is_for_reading, "seen in 3.11", "maps a file of a disk, if the system says so")),)),
    *(Library(name=name, roots=roots, arrays=(Arrays("_JObject", {"": hint_for_java}), Arrays(kind, gives=Fact(
        copy_of_java, evidence, "exports what a Java array had when the oldest export that is still held was made"))))
      for name, roots, kind, evidence in (
          ("jpype", ("_jpype", "jpype"), "_JArray", "jpype#1341"), ("jpy", ("jpy",), "JType", "seen in 2.2.0"))),
    Library(name="ctranslate2", arrays=(Arrays("StorageView", preferred=Fact(
        "array_interface", "CTranslate2#1386", "throws an exception of C++ for the other interface, on the CPU")),)),
    Library(name="skia", arrays=tuple(Arrays(name, preferred=Fact(
        "buffer", "skia-python#76", "makes its interface anew at each call, around its buffer"))
        for name in ("Bitmap", "Image", "Pixmap"))),
    Library(name="numkong", arrays=(Arrays(
        "Tensor", {"element type": 'pass x.astype("complex64")'},
        preferred=Fact("buffer", "seen in 7.8.6", "takes three times as long for __dlpack__"),
        ambiguous=Fact(("uint8", "uint16", "uint32"), "seen in 7.8.6",
                       "gives bfloat16 and floats of a byte the formats of integers, as PEP 3118 has none for them"),
        element_type=Fact(lambda tensor: tensor.dtype if tensor.dtype == "bfloat16c" else None, "seen in 7.8.6",
                          "exports its bfloat16c as complex numbers of half floats")),)),
    Library(name="vtk", roots=("vtkmodules",), arrays=(Arrays(
        "vtkBitArray", {"": "pass numpy.unpackbits(memoryview(x), count=x.GetNumberOfValues())"}, unasked=Fact(
            "has eight elements in a byte", "seen in 9.7.2", "exports the bytes")),)),
    Library(name="ray", arrays=tuple(Arrays(name, constant=Fact(True, "seen in 2.60", "is sealed in its store"))
                                     for name in ("Buffer", "SubBuffer"))),
    Library(name="cffi", roots=("_cffi_backend",), arrays=(Arrays("_CDataBase", {"": hint_for_cdata}),)),
    Library(
        name="cuda.core",
        devices=Fact({"Device": lambda device: f"cuda:{device.device_id}"}, "seen in 1.2.2"),
        arrays=(
            Arrays("StridedMemoryView",
                   exchange=Fact("cuda.core._memoryview.StridedMemoryView", "seen in 1.2.2")),
        ),
    ),
    # Subclasses of torch.Tensor that keep something beside its memory, and wrap what its functions return.
    Library(name="monai", arrays=(Arrays("MetaTensor", exchange=Fact(
        "monai.data.meta_tensor.MetaTensor", "seen in 1.6.1", "keeps where an image was taken beside its memory")),)),
    Library(name="torchvision", arrays=tuple(
        Arrays(name, exchange=Fact(f"torchvision.tv_tensors.{file}.{name}", "seen in 0.29.2",
                                   "keeps what its numbers mean beside its memory"))
        for file, name in (("_image", "Image"), ("_video", "Video"), ("_mask", "Mask"), ("_keypoints", "KeyPoints"),
                           ("_bounding_boxes", "BoundingBoxes")))),
    Library(name="pyvista", arrays=(
        Arrays("DataObject", {"": "call dlbridge.convert_tree(x.point_data, to)"}, partial=Fact(
            "offers its point data alone", "pyvista#8587", "is points, cells and several tables")),
        Arrays("DataSetAttributes", {"": IN_TREE}, container=Fact(
            (lambda data: dict(data.items()), keep_as_dict), "seen in 0.48", "takes NumPy's arrays alone")),
    )),
    Library(name="shapely", arrays=(
        Arrays("BaseGeometry", dict.fromkeys(("", "objects"), COORDINATES)),)),
    Library(name="geopandas", arrays=tuple(
        Arrays(name, dict.fromkeys(("", "type", "nothing"), COORDINATES)) for name in ("GeometryArray", "GeoSeries"))),
    Library(name="pyside", roots=("PySide6", "PySide2"), arrays=(
        Arrays("QImage", {"": ROWS.format("x.constBits()")}),)),
    Library(name="pyqt", roots=("PyQt6", "PyQt5"), arrays=(
        Arrays("QImage", {"": ROWS.format("x.constBits().asarray(x.sizeInBytes())")}),)),
    Library(
        name="h5py",
        arrays=(
            Arrays("Dataset", INDEXED, form_name=Fact(form_of_dataset, "seen in 3.14", "may have rows of any length")),
            Arrays("Group", {"": hint_for_group},
                   container=Fact((parts_of_group, keep_as_dict), "seen in 3.14", LAZY)),
        ),
        forms={"ragged": Form((), parts_of_rows, dense="numpy.concatenate(x[...])",
                              copied=lambda dataset: "it is read row by row")},
    ),
    Library(name="netCDF4", arrays=(Arrays("Variable", INDEXED), Arrays(
        "Dataset", {"": lambda dataset: hint_for_group(dataset.variables)},
        container=Fact((parts_of_netcdf, keep_as_dict), "seen in 1.7.5", LAZY)))),
    Library(name="tensordict", arrays=(Arrays("TensorDictBase", {"": IN_TREE}, container=Fact(
        (parts_of_tensordict, tensordict_of), "seen in 0.14",
        "takes arrays of others in, and then says wrong shapes of them")),)),
    Library(name="xarray", arrays=(
        Arrays("DataArray", {"": "pass x.data"}, unasked=Fact(
            "offers its values by a flat copy of everything alone", "seen in 2026.9.0",
            "makes a table of its values and coordinates for its Arrow stream")),
        Arrays("NamedArray", {"": "pass x.data"}),
        Arrays("Dataset", {"": lambda dataset: hint_for_variables(dataset.variables, "x[{!r}].data")}, container=Fact(
            (parts_of_dataset, keep_as_dict), *NO_TORCH)),
        Arrays("DataTree", {"": "pass x.to_dataset()"}, container=Fact((parts_of_tree, keep_as_dict), *NO_TORCH)),
    )),
    Library(name="zarr", arrays=(Arrays("Array", INDEXED), Arrays(
        "Group", {"": lambda group: hint_for_group(dict(group.members()))},
        container=Fact((lambda group: parts_of_group(dict(group.members())), keep_as_dict), "seen in 3.1", LAZY)))),
)
