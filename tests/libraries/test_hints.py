"""What an error tells a user to do: each hint is run, on the very object that was refused, and its result converts.

A row has how the object is made and what the code in the hint gives, or why there is no way. The next library's row is
one line.
"""

import array
import collections
import ctypes
import dataclasses
import datetime
import decimal
import fractions
import io
import multiprocessing
import pathlib
import tempfile
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

import astropy.table
import astropy.utils.masked
import av
import awkward
import cffi
import cv2
import dask.array
import geopandas
import graphblas
import h5py
import jax
import matplotlib.backends.backend_agg
import matplotlib.figure
import mpmath
import netCDF4
import numkong
import numpy as np
import openvino
import pandas
import PIL.Image
import polars
import pyarrow as pa
import pyarrow.compute
import pydicom
import pydicom.data
import pygame
import pytest
import rasterio.io
import scipy.interpolate
import scipy.io
import scipy.sparse
import scipy.spatial
import shapely
import SimpleITK
import skia
import sparse
import sympy
import tensorflow
import torch
import uproot
import vtkmodules.vtkCommonCore
import xarray
import zarr
from support.hints import code_in

import dlbridge

NAMES = {
    "numpy": np, "pandas": pandas, "polars": polars, "pyarrow": pa, "awkward": awkward, "torch": torch, "jax": jax,
    "SimpleITK": SimpleITK, "tensorflow": tensorflow, "dlbridge": dlbridge, "ffi": cffi.FFI(), "to": "numpy",
    "memoryview": memoryview, "PIL": PIL, "pathlib": pathlib, "shapely": shapely, "ctypes": ctypes, "type": type,
    "shape": (2,), "dtype": "int32",
}


class Row(NamedTuple):
    """An object that is refused, and the values that each piece of code in the hint gives; or why there is none."""

    name: str
    make: Callable[[], Any]
    values: tuple[Any, ...] = ()
    no_way: str = ""


SIX = np.arange(6.0)
DAY = datetime.date(1970, 1, 3)
SECONDS = 2 * 86400
ARROW_CATEGORIES = pa.dictionary(pa.int32(), pa.string())
GRID = SIX.reshape(2, 3)
POINTS = np.array([(1, 2.5), (3, 4.5)], [("id", "i8"), ("x", "f8")])
COLUMNS_OF_POINTS = {"id": [1, 3], "x": [2.5, 4.5]}
AB = [97, 98, 99, 0]                    # the letters of "ab" and "c"


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_int))


class Outer(ctypes.Structure):
    _fields_ = (("point", Point), ("numbers", ctypes.c_float * 3))


class Named(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char * 8), ("x", ctypes.c_int))


class Packed(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("kind", ctypes.c_uint8), ("x", ctypes.c_float))


KEPT = []


def pointer_of_cffi():
    KEPT.append(cffi.FFI().new("int32_t[]", [7, 8]))
    return cffi.FFI().cast("int32_t *", KEPT[-1])


@dataclasses.dataclass
class Sample:
    x: Any


class OldArray:
    def to_dlpack(self):
        return dlbridge.to_dlpack(np.arange(2))


class Pointing(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("x", ctypes.c_int64))


class Lazy:
    """Has ``__array__`` alone, as point clouds and proxies of images have."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(3)


class Interface:
    def __init__(self, memory):
        self.memory = memory

    @property
    def __array_interface__(self):
        return self.memory.__array_interface__


class Struct:
    def __init__(self, memory):
        self.memory = memory

    @property
    def __array_struct__(self):
        return self.memory.__array_struct__


def bits_of_vtk():
    bits = vtkmodules.vtkCommonCore.vtkBitArray()
    for index in range(10):
        bits.InsertNextValue(index % 3 == 0)
    return bits


def file_of(name):
    """The path of a file, which is made."""
    path = pathlib.Path(tempfile.mkdtemp(), name)
    if path.suffix == ".npy":
        np.save(path, [1, 2])
    elif path.suffix == ".png":
        PIL.Image.new("L", (2, 1), 3).save(path)
    else:
        path.write_bytes(b"ab")
    return str(path)


def shared_memory():
    block = SharedMemory(create=True, size=4096)
    block.buf[:3] = b"abc"
    block.unlink()
    return block


NUMPY = (
    Row("times", lambda: np.array([1, 2], "M8[D]"), ([1, 2],)),
    Row("times, big-endian", lambda: np.array([1, 2], ">M8[D]"), ([1, 2],)),
    Row("times, big-endian, without axes", lambda: np.array(2, ">M8[D]"), (2,)),
    Row("durations, strided", lambda: np.array([1, 2, 3], ">m8[s]")[::2], ([1, 3],)),
    Row("strings", lambda: np.array(["ab", "c"]), (AB,)),
    Row("strings, big-endian", lambda: np.array(["ab", "c"], ">U2"), (AB,)),
    Row("strings, big-endian, strided", lambda: np.array(["ab", "?", "c"], ">U2")[::2], (AB,)),
    Row("strings, transposed", lambda: np.array([["ab", "?"], ["c", "?"]]).T[0], (AB,)),
    Row("strings, without axes", lambda: np.array("ab"), (AB[:2],)),
    Row("bytes", lambda: np.array([b"ab", b"c"]), (AB,)),
    Row("bytes, strided", lambda: np.array([b"ab", b"?", b"c"])[::2], (AB,)),
    Row("bytes, without axes", lambda: np.array(b"ab"), (AB[:2],)),
    Row("bytes without form", lambda: np.array([b"ab", b"c"]).view("V2"), (AB,)),
    Row("bytes of no length", lambda: np.zeros(2, "V0"), no_way="no bytes"),
    Row("strings of any length", lambda: np.array(["ab", "c"], np.dtypes.StringDType()), (AB,)),
    Row("records", lambda: POINTS, ([1, 3], COLUMNS_OF_POINTS)),
    Row("records, strided", lambda: POINTS.repeat(2)[::2], ([1, 3], COLUMNS_OF_POINTS)),
    Row("a record", lambda: POINTS[0], (1, {"id": 1, "x": 2.5})),
    Row("a record array", lambda: POINTS.view(np.recarray), ([1, 3], COLUMNS_OF_POINTS)),
    Row("records of one type", lambda: np.ones(2, [("a", "f4"), ("b", "f4")]),
        ([[1, 1], [1, 1]], [1, 1], {"a": [1, 1], "b": [1, 1]})),
    Row("records of text", lambda: np.array([("ab",)], [("name", "U2")]), ({"name": [97, 98]},)),
    Row("objects", lambda: np.array([1, 2.5], object), ([1, 2.5],)),
    Row("integers as objects", lambda: np.array([2**53 + 1, 1], object), ([2**53 + 1, 1],)),
    Row("large integers as objects", lambda: np.array([2**64 - 1, 1], object), ([2**64 - 1, 1],)),
    Row("too large integers as objects", lambda: np.array([-1, 2**64], object), ([-1, 2.0**64],)),
    Row("integers and None as objects", lambda: np.array([1, None], object), (None,)),
    Row("complex numbers of NumPy as objects", lambda: np.array([np.complex64(2j), 1j], object), ([2j, 1j],)),
    Row("geometries as objects", lambda: np.array([shapely.Point(1, 2), shapely.Point(3, 4)]), ([[1, 2], [3, 4]],)),
    Row("complex objects", lambda: np.array([1, 2j], object), ([1, 2j],)),
    Row("strings as objects", lambda: np.array(["ab", "c"], object), (AB,)),
    Row("bytes as objects", lambda: np.array([b"ab", b"c"], object), (AB,)),
    Row("dates as objects", lambda: np.array([DAY], object), ([SECONDS * 1_000_000],)),
    Row("lists as objects", lambda: np.array([[1], [2, 3]], object), ([1, 2, 3],)),
    Row("arrays as objects", lambda: np.array([np.ones(1), np.ones(2)], object), ([[1], [1, 1]],)),
    Row("numbers of mpmath", lambda: np.array([mpmath.mpf(1), mpmath.mpf(2.5)]), ([1, 2.5],)),
    Row("complex numbers of mpmath", lambda: np.array([mpmath.mpc(2j), mpmath.mpf(1)]), ([2j, 1],)),
    Row("numbers of sympy", lambda: np.array([sympy.Rational(1, 2), sympy.Float(1)]), ([0.5, 1],)),
    Row("objects of no kind", lambda: np.array([object(), 1]), no_way="no numbers"),
    Row("strings of any length, and none", lambda: np.array(["a", None], np.dtypes.StringDType(na_object=None)),
        no_way="fill in"),
    Row("nested records", lambda: np.zeros(2, [("a", [("b", "f4")]), ("c", "i4")]),
        ([0, 0], {"a": {"b": [0, 0]}, "c": [0, 0]})),
    Row("long floats", lambda: np.array([1, 2.5], "g"), ([1, 2.5],)),
    Row("long floats, big-endian", lambda: np.array([1, 2.5], ">g")[::-1], ([2.5, 1],)),
    Row("long complex numbers", lambda: np.array([1, 2j], "G"), ([1, 2j],)),
    Row("masks", lambda: np.ma.array([1, 2], mask=[0, 1]), ([1, 0], [1, 2])),
    Row("a masked number", lambda: np.ma.array([1, 2], mask=[0, 1])[1:], ([0], [2])),
    Row("a matrix of strings", lambda: np.array([["ab", "c"]]).view(np.matrix), ([AB],)),
)
PYTHON = (
    Row("a list", lambda: [1, 2], ([1, 2],)),
    Row("a list of arrays", lambda: [np.ones(2), np.ones(3)], ([[1, 1], [1, 1, 1]],)),
    Row("a list of weights", lambda: [torch.ones(2, requires_grad=True)], ([[1, 1]],)),
    Row("a ragged list", lambda: [[1, 2], [3]], ([1, 2, 3],)),
    Row("a dictionary", lambda: {"a": np.ones(2)}, ({"a": [1, 1]},)),
    Row("an image of a camera, a tuple", lambda: (2, 1, np.zeros((1, 2), "u1"), "depth"), ([[[0, 0]]],)),
    Row("a list of objects with arrays", lambda: [SimpleITK.GetImageFromArray(GRID)] * 2, (GRID.tolist(),)),
    Row("a list with nothing in it", lambda: [1, None], (None,)),
    Row("a list of strings", lambda: ["a"], no_way="strings"),
    Row("a list of several depths", lambda: [[1], 2], no_way="different depths"),
    Row("pairs", lambda: zip([1], [2], strict=True), ([[1, 2]],)),
    Row("the items of a dictionary", lambda: {1: 7}.items(), ([[1, 7]],)),
    Row("the name of an array's file", lambda: file_of("x.npy"), ([1, 2],)),
    Row("the path of an array's file", lambda: pathlib.Path(file_of("x.npy")), ([1, 2],)),
    Row("the name of an image", lambda: file_of("x.png"), ([[3, 3]],)),
    Row("the name of a file", lambda: file_of("x.bin"), ([97, 98],)),
    Row("a file", lambda: open(file_of("x.bin"), "rb"), ([97, 98],)),       # noqa: SIM115
    Row("a file of text", lambda: open(file_of("x.bin")), ([97, 98],)),     # noqa: SIM115
    Row("a decimal", lambda: decimal.Decimal("1.5"), (1.5,)),
    Row("a fraction", lambda: fractions.Fraction(3, 2), (1.5,)),
    Row("a date", lambda: DAY, (2,)),
    Row("a time", lambda: datetime.datetime(1970, 1, 3), (SECONDS * 10**6,)),
    Row("a duration", lambda: datetime.timedelta(seconds=3), (3 * 10**6,)),
    Row("a function", lambda: len, no_way="is a function"),
    Row("a module", lambda: decimal, no_way="pass an array"),
    Row("a range", lambda: range(2), ([0, 1],)),
    Row("a number", lambda: 7, (7,)),
    Row("a set", lambda: {7}, ([7],)),
    Row("a generator", lambda: (number for number in (1, 2)), ([1, 2],)),
    Row("the values of a dictionary", lambda: {"a": 7}.values(), ([7],)),
    Row("a string", lambda: "ab", ([97, 98],)),
    Row("nothing", lambda: None, no_way="nothing to convert"),
    Row("a class", lambda: np.ndarray, no_way="not the class"),
    Row("an object", object, no_way="__dlpack__"),
    Row("an object with __array__ alone", Lazy, ([0, 1, 2],)),
    Row("shared memory", shared_memory, ([97, 98, 99, *4093 * [0]],)),
    Row("an array for processes", lambda: multiprocessing.Array("i", [1, 2]), ([1, 2],)),
    Row("a file in memory", lambda: io.BytesIO(b"ab"), ([97, 98],)),
    Row("structures of ctypes", lambda: (Point * 2)(Point(1, 2), Point(3, 4)), ([1, 3],)),
    Row("a structure of ctypes", lambda: Point(1, 2), (1,)),
    Row("long floats of ctypes", lambda: (ctypes.c_longdouble * 2)(1, 2.5), ([1, 2.5],)),
    Row("a view of structures", lambda: memoryview((Point * 2)(Point(1, 2), Point(3, 4))), ([1, 3],)),
    Row("nested structures of ctypes", lambda: (Outer * 2)(), (2 * [[0, 0, 0]],)),
    Row("structures of ctypes with text", lambda: (Named * 2)(), ([0, 0],)),
    Row("packed structures of ctypes", lambda: (Packed * 2)(Packed(1, 2), Packed(3, 4)),
        ([[1, 0, 0, 0, 64], [3, 0, 0, 128, 64]],)),
    Row("a pointer of ctypes", lambda: ctypes.cast((ctypes.c_int32 * 2)(7, 8), ctypes.POINTER(ctypes.c_int32)),
        ([7, 8],)),
    Row("structures of ctypes with pointers", lambda: (Pointing * 2)(), (2 * 16 * [0],)),
    Row("wide characters of ctypes", lambda: ctypes.create_unicode_buffer("ab"), ([97, 98, 0],)),
    Row("a view of strings", lambda: memoryview(np.array(["ab", "c"], ">U2")), (AB,)),
    Row("characters", lambda: array.array("u", "ab"), ([97, 98],)),
    Row("an interface of strings", lambda: Interface(np.array(["ab", "?", "c"], ">U2")[::2]), (AB,)),
    Row("an interface of times", lambda: Interface(np.array([1, 2], ">M8[s]")), ([1, 2],)),
    Row("an interface of records", lambda: Interface(POINTS), (list(POINTS.tobytes()),)),
    Row("a structure of strings", lambda: Struct(np.array(["ab", "c"], ">U2")), no_way="no numbers"),
    Row("a structure of times", lambda: Struct(np.array([1, 2], "M8[s]")), ([1, 2],)),
    Row("memory of cffi", lambda: cffi.FFI().new("char[]", b"ab"), ([97, 98, 0],)),
    Row("a pointer of cffi", pointer_of_cffi, ([7, 8],)),
    Row("a dataclass", lambda: Sample(np.ones(2)), ({"x": [1, 1]},)),
    Row("a dictionary of a user", lambda: collections.UserDict(a=np.ones(2)), ({"a": [1, 1]},)),
    Row("a queue", lambda: collections.deque([np.ones(2)]), ([[1, 1]],)),
    Row("an object with to_dlpack alone", OldArray, ([0, 1],)),
)


def hdf5():
    file = h5py.File(io.BytesIO(), "w")
    file["x"] = SIX
    return file


def group_of_groups():
    file = h5py.File(io.BytesIO(), "w")
    file["g/x"] = SIX
    return file


def netcdf():
    dataset = netCDF4.Dataset("memory", "w", memory=4096)
    dataset.createDimension("x", 6)
    dataset.createVariable("x", "f8", ("x",))[:] = SIX
    return dataset


def xarray_of(values):
    return xarray.DataArray(values, dims=("a", "b"))


def raster():
    file = rasterio.io.MemoryFile()
    with file.open(driver="GTiff", width=2, height=1, count=1, dtype="uint8") as dataset:
        dataset.write(np.array([[[7, 8]]], "u1"))
    return file.open()


def histogram_of_root():
    path = pathlib.Path(tempfile.mkdtemp(), "x.root")
    with uproot.recreate(path) as file:
        file["x"] = np.histogram([0.5, 1.5, 1.6], [0, 1, 2])
        file["tree"] = {"numbers": SIX}
    return uproot.open(path)


def netcdf_of_scipy():
    file = scipy.io.netcdf_file(io.BytesIO(), "w")
    file.createDimension("x", 6)
    file.createVariable("x", "f8", ("x",))[:] = SIX
    return file


def figure():
    figure = matplotlib.figure.Figure((0.02, 0.01), 100)
    matplotlib.backends.backend_agg.FigureCanvasAgg(figure).draw()
    return figure


SPARSE = np.array([[0, 2.0], [0, 0]])
PARTS_OF_SPARSE = [[0, 1, 1], [1], [2.0]]
PACKAGES = (
    Row("h5py.Dataset", lambda: hdf5()["x"], (SIX.tolist(),)),
    Row("h5py.File", hdf5, (SIX.tolist(),)),
    Row("h5py.File, empty", lambda: h5py.File(io.BytesIO(), "w"), no_way="no arrays"),
    Row("netCDF4.Variable", lambda: netcdf()["x"], (SIX.tolist(),)),
    Row("netCDF4.Dataset", netcdf, (SIX.tolist(),)),
    Row("zarr.Array", lambda: zarr.array(SIX), (SIX.tolist(),)),
    Row("zarr.Group", lambda: zarr.create_array({}, name="x", data=SIX) and zarr.group({}), no_way="no arrays"),
    Row("dask.array", lambda: dask.array.from_array(SIX), (SIX.tolist(),)),
    Row("xarray.DataArray", lambda: xarray_of(GRID), (GRID.tolist(),)),
    Row("xarray.DataArray, lazy", lambda: xarray_of(GRID).chunk(), (GRID.tolist(),)),
    Row("xarray.Variable", lambda: xarray_of(GRID).variable, (GRID.tolist(),)),
    Row("xarray.Dataset", lambda: xarray.Dataset({"x": xarray_of(GRID)}), (GRID.tolist(),)),
    Row("xarray.DataTree", lambda: xarray.DataTree(xarray.Dataset({"x": xarray_of(GRID)})), (GRID.tolist(),)),
    *(Row(f"scipy.sparse, {form}", lambda form=form: scipy.sparse.coo_array(SPARSE).asformat(form), (SPARSE.tolist(),))
      for form in ("coo", "dia", "dok", "lil")),
    Row("scipy.sparse, csr", lambda: scipy.sparse.csr_array(SPARSE), (SPARSE.tolist(), PARTS_OF_SPARSE)),
    Row("scipy.sparse, csc", lambda: scipy.sparse.csc_array(SPARSE), (SPARSE.tolist(), [[0, 0, 1], [0], [2.0]])),
    Row("scipy.sparse, bsr", lambda: scipy.sparse.bsr_array(SPARSE, blocksize=(1, 1)),
        (SPARSE.tolist(), [[0, 1, 1], [1], [[[2.0]]]])),
    Row("scipy.sparse, a matrix", lambda: scipy.sparse.csr_matrix(SPARSE), (SPARSE.tolist(), PARTS_OF_SPARSE)),
    Row("sparse.COO", lambda: sparse.COO(SPARSE), (SPARSE.tolist(),)),
    Row("NumKong, bfloat16c", lambda: numkong.full((2,), 3.0, dtype="bfloat16c"), ([3 + 3j] * 2,)),    # of both parts
    Row("vtkBitArray", bits_of_vtk, ([1, 0, 0, 1, 0, 0, 1, 0, 0, 1],)),
    Row("skia.Surface", lambda: skia.Surface(2, 1), ([[[0] * 4] * 2],)),
    Row("graphblas.Vector", lambda: graphblas.Vector.from_dense([1, 2]), ([1, 2],)),
    Row("graphblas.Matrix, with nothing", lambda: graphblas.Matrix.from_coo([0, 1], [0, 1], [1, 2]),
        ([[1, 0], [0, 2]],)),
    Row("mpmath.matrix", lambda: mpmath.matrix([[1, 2]]), ([[1, 2]],)),
    Row("a histogram of ROOT", lambda: histogram_of_root()["x"], ([1, 2],)),
    Row("a branch of ROOT", lambda: histogram_of_root()["tree"]["numbers"], (SIX.tolist(),)),
    Row("awkward, a layout", lambda: awkward.Array(SIX).layout, (SIX.tolist(),)),
    Row("sparse.GCXS", lambda: sparse.GCXS(SPARSE), (SPARSE.tolist(),)),
    Row("scipy.io.netcdf_file", netcdf_of_scipy, (SIX.tolist(),)),
    Row("scipy.io.netcdf_variable", lambda: netcdf_of_scipy().variables["x"], (SIX.tolist(),)),
    Row("rasterio.DatasetReader", raster, ([[[7, 8]]],)),
    Row("pydicom.Dataset", lambda: pydicom.dcmread(pydicom.data.get_testdata_file("CT_small.dcm")), (None,)),
    Row("pygame.Surface", lambda: pygame.Surface((2, 1), depth=32), ([[[0, 0, 0]], [[0, 0, 0]]], [0] * 8)),
    Row("matplotlib.Figure", figure, (None, [[[255] * 4] * 2])),
    Row("matplotlib, a canvas", lambda: figure().canvas, (None, [[[255] * 4] * 2])),
    Row("geopandas.GeoSeries", lambda: geopandas.GeoSeries([shapely.Point(1, 2)]), ([[1, 2]],)),
    Row("geopandas, an array", lambda: geopandas.GeoSeries([shapely.Point(1, 2)]).values, ([[1, 2]],)),
    Row("shapely.Point", lambda: shapely.Point(1, 2), ([[1, 2]],)),
    Row("scipy.spatial.Rotation", lambda: scipy.spatial.transform.Rotation.from_quat([0, 0, 0, 1]),
        (np.eye(3).tolist(),)),
    Row("scipy.BSpline", lambda: scipy.interpolate.BSpline([0, 1, 2], [1.0, 2.0], 0), ([1, 2],)),
    Row("scipy.CubicSpline", lambda: scipy.interpolate.CubicSpline([0, 1], [0, 1.0]), ([[0], [0], [1], [0]],)),
    Row("scipy.KDTree", lambda: scipy.spatial.KDTree(GRID), (GRID.tolist(),)),
    Row("SimpleITK.Image", lambda: SimpleITK.GetImageFromArray(GRID), (GRID.tolist(),)),
    Row("cv2.UMat", lambda: cv2.UMat(np.ones((2, 2), "u1")), ([[1, 1], [1, 1]],)),
    Row("SimpleITK labels", lambda: SimpleITK.Image([2, 2], SimpleITK.sitkLabelUInt8), ([[0, 0], [0, 0]],)),
    Row("astropy.Table", lambda: astropy.table.Table({"a": np.ma.array([1, 2], mask=[1, 0])}), ([0, 2],)),
    Row("jax keys", lambda: jax.random.key(1), ([0, 1],)),
    Row("torch, sparse blocks", lambda: torch.tensor(SPARSE).to_sparse_bsr((1, 1)), (SPARSE.tolist(),)),
    Row("torch, sparse columns", lambda: torch.tensor(SPARSE).to_sparse_csc(), (SPARSE.tolist(),)),
    Row("h5py.Group of groups", group_of_groups, (SIX.tolist(),)),
    Row("av.VideoFrame", lambda: av.VideoFrame.from_ndarray(np.full((2, 2, 3), 7, "u1"), "rgb24"),
        (np.full((2, 2, 3), 7).tolist(),)),
    Row("av.AudioFrame", lambda: av.AudioFrame.from_ndarray(np.ones((2, 3), "f4"), "fltp", "stereo"),
        (np.ones((2, 3)).tolist(),)),
    Row("av.VideoPlane, big-endian",
        lambda: av.VideoFrame.from_ndarray(np.full((2, 16), 258, "u2"), "gray16be").planes[0], ([[1, 2] * 16] * 2,)),
    Row("astropy mask", lambda: astropy.utils.masked.Masked(SIX[:2], mask=[True, False]), ([0, 1], [0, 1])),
    Row("awkward, ragged", lambda: awkward.Array([[1], [2, 3]]), ([1, 2, 3],)),
    Row("awkward, with nothing", lambda: awkward.Array([1, None]), ([1],)),
    Row("awkward, of one length, with nothing", lambda: awkward.to_regular(awkward.Array([[1, None]])), ([1],)),
    Row("awkward records", lambda: awkward.Array([{"x": 1}, {"x": 2}]), ([1, 2],)),
    Row("awkward record", lambda: awkward.Array([{"x": [1, 2]}])[0], ([1, 2],)),
    Row("awkward strings", lambda: awkward.Array(["a"]), no_way="strings"),
    Row("tensorflow, ragged", lambda: tensorflow.ragged.constant([[1], [2, 3]]), ([[1, 0], [2, 3]],)),
    Row("tensorflow, sparse", lambda: tensorflow.sparse.from_dense(SPARSE), (SPARSE.tolist(),)),
    Row("tensorflow.Variable", lambda: tensorflow.Variable(SIX), (SIX.tolist(),)),
    Row("tensorflow, small integers", lambda: tensorflow.cast([1, 2], tensorflow.dtypes.experimental.int4), ([1, 2],)),
    Row("openvino, small integers", lambda: openvino.Tensor(np.array([1, 2], "u1"), [4], openvino.Type.u4),
        ([1, 2],)),
    Row("tensorflow strings", lambda: tensorflow.constant(["a"]), no_way="strings"),
    Row("torch, sparse", lambda: torch.tensor(SPARSE).to_sparse(), (SPARSE.tolist(),)),
    Row("torch, sparse rows", lambda: torch.tensor(SPARSE).to_sparse_csr(), (SPARSE.tolist(),)),
    Row("torch, of a mode", lambda: torch.tensor(SPARSE).float().to_mkldnn(), (SPARSE.tolist(),)),
    Row("torch, nested", lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        ([[1, 0], [1, 1]], [[1], [1, 1]])),
    Row("torch, quantized", lambda: torch.quantize_per_tensor(torch.tensor([1.0]), 0.5, 0, torch.qint8), ([2], [1])),
    Row("torch, meta", lambda: torch.zeros(2, device="meta"), (None,)),
    Row("torch, with a gradient", lambda: torch.ones(2, requires_grad=True), ([1, 1],)),
)


def series(values, kind):
    values = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pandas.Series(values, dtype=pandas.ArrowDtype(kind))


def opaque():
    return pa.ExtensionArray.from_storage(pa.opaque(pa.float32(), "a type", "a vendor"), pa.array([1.5], pa.float32()))


PERIODS = pandas.Series(pandas.period_range("1970-01-02", periods=2, freq="D"))
MIXED = pandas.Series(pandas.Categorical([1, "a"]))
PAIRS = pa.list_(pa.int64(), 2)
PANDAS = (
    Row("Series with nulls", lambda: pandas.Series([1.0, None], dtype="Float64"), ([1, 0], [1])),
    Row("Series of bools with nulls", lambda: pandas.Series([True, None], dtype="boolean"), ([True, False],)),
    Row("Index", lambda: pandas.Index(SIX), (SIX.tolist(),)),
    Row("RangeIndex", lambda: pandas.RangeIndex(2), ([0, 1],)),
    Row("DataFrame of two types", lambda: pandas.DataFrame({"x": [1], "y": [True]}),
        ([[1.0, 1.0]], {"x": [1], "y": [True]})),
    Row("DataFrame of mixed objects", lambda: pandas.DataFrame({"a": [1, "x"], "b": [1, 2]}),
        ({"a": "its elements are no numbers, and no array library has them", "b": [1, 2]},)),
    Row("DataFrame with nulls", lambda: pandas.DataFrame({"x": [1, None]}, dtype="Int64"),
        ([[1], [0]], [[1]], {"x": [1, 0]})),
    Row("DataFrame without columns", pandas.DataFrame, ({},)),
    Row("periods", lambda: PERIODS, ([1, 2],)),
    Row("dates", lambda: series([DAY], pa.date32()), ([2],)),
    Row("dates of 64 bits", lambda: series([DAY], pa.date64()), ([SECONDS * 1000],)),
    Row("times of the day", lambda: series([datetime.time(0, 0, 3)], pa.time32("s")), ([3],)),
    Row("times of the day of 64 bits", lambda: series([datetime.time(0, 0, 3)], pa.time64("us")), ([3_000_000],)),
    Row("points in time", lambda: pandas.Series(pandas.to_datetime([DAY]).as_unit("s")), ([SECONDS],)),
    Row("points in time with a zone", lambda: pandas.Series(pandas.to_datetime([DAY], utc=True).as_unit("s")),
        ([SECONDS],)),
    Row("points in time of Arrow", lambda: series([datetime.datetime(1970, 1, 3)], pa.timestamp("s")), ([SECONDS],)),
    Row("durations", lambda: pandas.Series(pandas.to_timedelta([5])), ([5],)),
    Row("durations of Arrow", lambda: series([5], pa.duration("s")), ([5],)),
    Row("decimals", lambda: series([1], pa.decimal128(3)), ([1.0],)),
    Row("categories", lambda: pandas.Series(["a", "b", "a"], dtype="category"), ([0, 1, 0], [97, 98, 97])),
    Row("categories and none", lambda: pandas.Series(["a", None, "b"], dtype="category"), ([0, -1, 1], [97, 98])),
    Row("categories of Arrow and none",
        lambda: series(pa.array(["a", None]).dictionary_encode(), ARROW_CATEGORIES), ([0, -1], [97])),
    Row("categories of Arrow",
        lambda: series(pa.array(["a", "b"]).dictionary_encode(), ARROW_CATEGORIES), ([0, 1], [97, 98])),
    Row("categories of several types", lambda: MIXED, no_way="one type of numbers"),
    Row("intervals", lambda: pandas.Series(pandas.interval_range(0, 2)), ([0, 1],)),
    Row("structs", lambda: series([{"name": 3}], pa.struct({"name": pa.int8()})), ([3],)),
    Row("lists", lambda: series([[1], [2, 3]], pa.list_(pa.int8())), ([1, 2, 3],)),
    Row("pairs with nulls in them", lambda: series([[1, None]], PAIRS), ([1, 0], [1])),
    Row("pairs and nulls", lambda: series([[1, 2], None], PAIRS), ([[1, 2]],)),
    Row("bools of Arrow", lambda: series([True, False], pa.bool_()), ([True, False],)),
    Row("bools of Arrow with nulls", lambda: series([True, None], pa.bool_()), ([True, False],)),
    Row("strings of Arrow", lambda: series(["b", None, "a"], pa.string()), ([1, -1, 0],)),
    Row("strings", lambda: pandas.Series(["b", None, "a"]), ([1, -1, 0],)),
    Row("objects", lambda: pandas.Series([1, 2.5], dtype=object), ([1, 2.5],)),
    Row("sparse", lambda: pandas.Series(pandas.arrays.SparseArray([0, 1])), ([0, 1],)),
    Row("SparseArray", lambda: pandas.arrays.SparseArray([0, 1]), ([0, 1],)),
    Row("Categorical", lambda: pandas.Categorical(["a", "b"]), ([0, 1],)),
    Row("CategoricalIndex", lambda: pandas.CategoricalIndex(["a", "b"]), ([0, 1],)),
    Row("MultiIndex", lambda: pandas.MultiIndex.from_tuples([(1, 2)]), ([[0], [0]],)),
    Row("DatetimeIndex", lambda: pandas.to_datetime([DAY]).as_unit("s"), ([SECONDS],)),
    Row("TimedeltaIndex", lambda: pandas.to_timedelta([5]), ([5],)),
    Row("PeriodIndex", lambda: pandas.PeriodIndex(PERIODS), ([1, 2],)),
    Row("PeriodArray", lambda: PERIODS.array, ([1, 2],)),
    Row("IntegerArray with nulls", lambda: pandas.array([1, None]), ([1, 0],)),
    Row("IntervalIndex", lambda: pandas.interval_range(0, 2), ([0, 1],)),
    Row("Timestamp", lambda: pandas.Timestamp(5), (5,)),
    Row("Timedelta", lambda: pandas.Timedelta(5), (5,)),
    Row("Period", lambda: PERIODS[0], (1,)),
    Row("Interval", lambda: pandas.Interval(0, 2), ([0, 2],)),
    Row("NA", lambda: pandas.NA, no_way="no value"),
    Row("NaT", lambda: pandas.NaT, no_way="no value"),
    Row("groups", lambda: pandas.DataFrame({"x": SIX}).groupby("x"), no_way="one group"),
)
POLARS = (
    Row("nulls", lambda: polars.Series([1, None]), ([1, 0], [1])),
    Row("bools", lambda: polars.Series([True, False]), ([True, False],)),
    Row("bools with nulls", lambda: polars.Series([True, None]), ([True, False],)),
    Row("categories", lambda: polars.Series(["a", "b"], dtype=polars.Enum(["a", "b"])), ([0, 1],)),
    Row("categories and none", lambda: polars.Series(["b", None], dtype=polars.Enum(["a", "b"])), ([1, -1],)),
    Row("dates", lambda: polars.Series([DAY]), ([2],)),
    Row("times", lambda: polars.Series([datetime.time(0, 0, 0, 3)]), ([3000],)),
    Row("points in time", lambda: polars.Series([DAY]).cast(polars.Datetime("ms")), ([SECONDS * 1000],)),
    Row("durations", lambda: polars.Series([datetime.timedelta(0, 0, 5)]), ([5],)),
    Row("decimals", lambda: polars.Series(["1.5"]).cast(polars.Decimal(5, 2)), ([1.5],)),
    Row("lists", lambda: polars.Series([[1], [2, 3]]), ([1, 2, 3],)),
    Row("pairs with nulls in them", lambda: polars.Series([[1, None]], dtype=polars.Array(polars.Int64, 2)),
        ([1, 0], [1])),
    Row("pairs and nulls", lambda: polars.Series([[1, 2], None], dtype=polars.Array(polars.Int64, 2)), ([[1, 2]],)),
    Row("structs", lambda: polars.Series([{"name": 3}]), ([3],)),
    Row("storage", lambda: polars.Series([1.5]).ext.to(polars.Extension("own", polars.Float64, None)), ([1.5],)),
    Row("strings", lambda: polars.Series(["b", None, "a"]), ([0, -1, 1],)),
    Row("bytes", lambda: polars.Series([b"ab"]), ([97, 98],)),
    Row("objects", lambda: polars.Series([object()], dtype=polars.Object), no_way="no array library"),
    Row("nothing", lambda: polars.Series([None]), no_way="nothing to convert"),
    Row("DataFrame of two types", lambda: polars.DataFrame({"x": [1], "y": [True]}),
        ([[1.0, 1.0]], {"x": [1], "y": [True]})),
    Row("DataFrame with nulls", lambda: polars.DataFrame({"x": [1, None]}),
        ([[1], [0]], [[1]], {"x": [1, 0]})),
    Row("DataFrame without columns", polars.DataFrame, ({},)),
    Row("LazyFrame", lambda: polars.LazyFrame({"x": [1]}), ({"x": [1]},)),
    Row("Expr", lambda: polars.col("x"), no_way="evaluated"),
    Row("groups", lambda: polars.DataFrame({"x": SIX}).group_by("x"), no_way="__dlpack__"),
)
UNION = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2]), pa.array([1.5, 2.5])])
ARROW = (
    Row("nulls", lambda: pa.array([1, None]), ([1, 0], [1])),
    Row("chunks and nulls", lambda: pa.chunked_array([[1, None]]), ([1, 0], [1])),
    Row("bools", lambda: pa.array([True, False]), ([True, False],)),
    Row("bools with nulls", lambda: pa.array([True, None]), ([True, False],)),
    Row("bools in chunks", lambda: pa.chunked_array([[True]]), ([True],)),
    Row("bools of other bytes", lambda: pa.array([2, 0], pa.int8()).view(pa.bool8()), ([2, 0],)),
    Row("nothing", lambda: pa.nulls(2), no_way="nothing to convert"),
    Row("dates", lambda: pa.array([DAY], pa.date32()), ([2],)),
    Row("dates of 64 bits", lambda: pa.array([DAY], pa.date64()), ([SECONDS * 1000],)),
    Row("times of the day", lambda: pa.array([3], pa.time32("s")), ([3],)),
    Row("times of the day of 64 bits", lambda: pa.array([3], pa.time64("ns")), ([3],)),
    Row("points in time", lambda: pa.array([3], pa.timestamp("s")), ([3],)),
    Row("durations", lambda: pa.array([3], pa.duration("s")), ([3],)),
    Row("intervals", lambda: pa.array([(1, 2, 3)], pa.month_day_nano_interval()), no_way="no array library"),
    Row("decimals", lambda: pa.array([1], pa.decimal128(3)), ([1],)),
    Row("strings", lambda: pa.array(["ab", "c"]), (AB[:3],)),
    Row("strings beyond ASCII", lambda: pa.array(["h\u00e9"]), (list("h\u00e9".encode()),)),
    Row("strings in chunks", lambda: pa.chunked_array([["ab", "c"]]), (AB[:3],)),
    Row("a slice of strings", lambda: pa.array(["ab", "c"])[1:], ([99],)),
    Row("a slice of bytes of one length", lambda: pa.array([b"ab", b"cd"], pa.binary(2))[1:], ([99, 100],)),
    Row("large strings", lambda: pa.array(["ab", "c"], pa.large_string()), (AB[:3],)),
    Row("views of strings", lambda: pa.array(["ab", "c"], pa.string_view()), (AB[:3],)),
    Row("bytes", lambda: pa.array([b"ab", b"c"]), (AB[:3],)),
    Row("views of bytes", lambda: pa.array([b"ab", b"c"], pa.binary_view()), (AB[:3],)),
    Row("bytes of one length", lambda: pa.array([b"ab"], pa.binary(2)), (AB[:2],)),
    Row("categories", lambda: pa.array([7, 8]).dictionary_encode(), ([0, 1], [7, 8])),
    Row("categories and none", lambda: pa.array(["a", None, "b"]).dictionary_encode(), ([0, -1, 1], [97, 98])),
    Row("categories by unsigned numbers", lambda: pa.DictionaryArray.from_arrays(pa.array([0, None], "uint8"), [7]),
        ([0, -1], None)),
    Row("categories of strings", lambda: pa.array(["a", "b"]).dictionary_encode(), ([0, 1], [97, 98])),
    Row("categories in chunks", lambda: pa.chunked_array([pa.array([7, 8]).dictionary_encode()]), ([0, 1], [7, 8])),
    Row("lists", lambda: pa.array([[1], [2, 3]]), ([1, 2, 3],)),
    Row("lists in chunks", lambda: pa.chunked_array([[[1], [2, 3]]]), ([1, 2, 3],)),
    Row("lists of lists", lambda: pa.array([[[1]], [[2, 3]]]), ([1, 2, 3],)),
    Row("lists of bools", lambda: pa.array([[True], [False]], pa.list_(pa.bool_(), 1)), ([True, False],)),
    Row("pairs with nulls in them", lambda: pa.array([[1, None]], PAIRS), ([1, 0], [1])),
    Row("pairs and nulls", lambda: pa.array([[1, 2], None], PAIRS), ([[1, 2]],)),
    Row("maps", lambda: pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())), ([1, 2],)),
    Row("unions", lambda: UNION, ([1, 2],)),
    Row("runs", lambda: pa.compute.run_end_encode(pa.array([7, 7, 8])), ([7, 7, 8],)),
    Row("structs", lambda: pa.array([{"x": 3}]), ([3],)),
    Row("periods", lambda: pa.array(PERIODS), ([1, 2],)),
    Row("an extension type", opaque, ([1.5],)),
    Row("an extension type in chunks", lambda: pa.chunked_array([opaque()]), ([1.5],)),
    Row("an identifier", lambda: pa.array([bytes(16)], pa.uuid()), (16 * [0],)),
    Row("a table", lambda: pa.table({"x": SIX}), ({"x": SIX.tolist()},)),
    Row("a batch", lambda: pa.record_batch({"x": SIX}), ({"x": SIX.tolist()},)),
)
GROUPS = {"numpy": NUMPY, "python": PYTHON, "packages": PACKAGES, "pandas": PANDAS, "polars": POLARS, "arrow": ARROW}


def values_of(x: Any, hints: int = 4) -> Any:
    """The values of what a hint gave, if need be after the hint of its own error."""
    if dataclasses.is_dataclass(x):
        x = vars(x)
    if isinstance(x, (dict, collections.UserDict)):
        return {name: values_of(column) for name, column in x.items()}
    if isinstance(x, (tuple, list, collections.deque)):
        arrays = [part for part in x if isinstance(part, (torch.Tensor, np.ndarray))]
        if arrays:
            return [values_of(part) for part in arrays]         # "one by one"
    try:
        return np.asarray(dlbridge.asdlpack(x)).tolist()
    except dlbridge.DLBridgeError as error:
        if not hints:
            raise
        code = next(code_in(error.hint, NAMES), None)
        return error.hint if code is None else values_of(eval(code, {**NAMES, "x": x}), hints - 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [row for rows in GROUPS.values() for row in rows],
                         ids=[f"{group}: {row.name}" for group, rows in GROUPS.items() for row in rows])
def test_what_a_hint_says_works(row):
    with pytest.raises(dlbridge.DLBridgeError) as caught:
        dlbridge.asdlpack(row.make())
    hint = caught.value.hint
    assert str(caught.value).endswith(f"({hint})")
    assert dlbridge.explain(row.make(), "dlbridge").hint == hint
    codes = list(code_in(hint, NAMES))
    if row.no_way:
        assert not codes
        assert row.no_way in hint
        return
    assert len(codes) == len(row.values), hint
    for code, expected in zip(codes, row.values, strict=True):
        x = row.make()              # shared memory ends with its object
        given = values_of(eval(code, {**NAMES, "x": x}))
        assert expected is None or given == expected, code


def test_the_hint_for_the_address_of_a_pointer_of_cffi():
    x = pointer_of_cffi()
    with pytest.raises(TypeError, match="is no integer") as caught:
        dlbridge.from_pointer(x, (2,), "int32")
    (code,) = code_in(str(caught.value), ("int",))
    tensor = dlbridge.from_pointer(eval(code, {"ffi": cffi.FFI(), "x": x}), (2,), "int32", owner=x)
    assert dlbridge.convert(tensor, "numpy").tolist() == [7, 8]


def test_the_name_of_a_row_is_its_own():
    for rows in GROUPS.values():
        assert len({row.name for row in rows}) == len(rows)
