"""dtype= and shape=: a source of bytes, seen as what it is."""

import ctypes
import gc
import mmap
import weakref

import numpy as np
import PIL.Image
import pyarrow
import pytest
import torch
from support.children import each_in_one_child
from support.optional import params

import dlbridge

pytestmark = pytest.mark.quick

NUMBERS = np.arange(6, dtype="f4")


@pytest.mark.parametrize("to", params(["numpy", "torch", "memoryview", "dlbridge"]))
@pytest.mark.parametrize("make", [
    bytearray, lambda data: memoryview(bytearray(data)), lambda data: np.frombuffer(bytearray(data), "u1"),
    lambda data: dlbridge.asdlpack(bytearray(data))], ids=["bytearray", "view", "uint8", "Tensor"])
def test_bytes_are_seen_as_numbers(make, to):
    source = make(NUMBERS.tobytes())
    seen = dlbridge.convert(source, to, dtype="float32", shape=(2, 3), copy=False)
    array = np.asarray(seen)
    assert array.tolist() == NUMBERS.reshape(2, 3).tolist()
    assert array.ctypes.data == dlbridge.asdlpack(source).data_ptr


@pytest.mark.parametrize(("shape", "expected"), [
    (None, (6,)), ((6,), (6,)), ((2, 3), (2, 3)), ((-1, 2), (3, 2)), ((1, -1, 1), (1, 6, 1)), ([3, 2], (3, 2))])
def test_the_shape(shape, expected):
    assert dlbridge.convert(NUMBERS.tobytes(), "numpy", dtype="float32", shape=shape).shape == expected


def test_a_shape_alone_is_of_bytes():
    array = dlbridge.convert(b"abcdef", "numpy", shape=(2, 3))
    assert (array.dtype, array.tolist()) == (np.uint8, [[97, 98, 99], [100, 101, 102]])


@pytest.mark.needs("torch")
def test_a_type_that_numpy_lacks():
    source = torch.arange(6).to(torch.bfloat16)
    data = source.view(torch.uint8).numpy().tobytes()
    assert dlbridge.convert(bytearray(data), "torch", dtype="bfloat16", shape=(2, 3)).equal(source.reshape(2, 3))


@pytest.mark.parametrize("dtype", ["<f4", "f4", np.float32, np.dtype("f4"), "float32"])
def test_forms_of_a_dtype(dtype):
    assert dlbridge.convert(NUMBERS.tobytes(), "numpy", dtype=dtype).tolist() == NUMBERS.tolist()


@pytest.mark.parametrize(("to", "action"), params([("numpy", "share"), ("torch", "copy")]))
def test_the_other_byte_order(to, action):
    data = NUMBERS.astype(">f4").tobytes()
    assert np.asarray(dlbridge.convert(data, to, dtype=">f4")).tolist() == NUMBERS.tolist()
    assert dlbridge.explain(data, to, dtype=">f4").action == action


def test_packed_elements_are_counted_by_bits():
    assert dlbridge.convert(b"\x21\x43", "dlbridge", dtype="int4").shape == (4,)
    assert dlbridge.convert(b"\x21\x43", "dlbridge", dtype="int4", shape=(3,)).nbytes == 2
    with pytest.raises(dlbridge.ConversionError, match=r"shape \(2,\): of int4 takes 1 bytes, and there are 2"):
        dlbridge.convert(b"\x21\x43", "dlbridge", dtype="int4", shape=(2,))


def test_memory_at_an_odd_address():
    data = memoryview(bytearray(b"x" + NUMBERS.tobytes()))[1:]
    assert dlbridge.convert(data, "numpy", dtype="float32").tolist() == NUMBERS.tolist()


@pytest.mark.needs("pyarrow")
def test_a_buffer_of_arrow_is_bytes():
    import pyarrow

    assert dlbridge.convert(pyarrow.py_buffer(NUMBERS.tobytes()), "numpy", dtype="float32").tolist() == NUMBERS.tolist()


def test_read_only_bytes_stay_so():
    assert not dlbridge.convert(NUMBERS.tobytes(), "numpy", dtype="float32").flags.writeable


@pytest.mark.needs("torch")
def test_tensors_of_bytes_of_the_target_itself():
    source = torch.zeros(8, dtype=torch.uint8)
    seen = dlbridge.convert(source, "torch", dtype="float32")
    assert (seen.dtype, seen.data_ptr()) == (torch.float32, source.data_ptr())
    assert dlbridge.convert(source, "torch") is source
    seen.fill_(1)
    del seen
    assert source.view(torch.float32).tolist() == [1, 1]


def test_the_bytes_are_held_as_long_as_what_was_made_of_them():
    source = bytearray(NUMBERS.tobytes())
    seen = dlbridge.convert(source, "numpy", dtype="float32")
    with pytest.raises(BufferError):
        source.append(0)
    del seen
    gc.collect()
    source.append(0)
    with mmap.mmap(-1, 4096) as pages:
        copied = dlbridge.convert(pages, "numpy", dtype="float64", copy=True)
    assert copied.shape == (512,)


@pytest.mark.needs("ml_dtypes")
def test_the_plan_is_what_happens():
    plan = dlbridge.explain(bytearray(24), "numpy", dtype="bfloat16", shape=(3, 4))
    assert (plan.action, plan.dtype, plan.shape, plan.nbytes) == ("share", "bfloat16", (3, 4), 24)


@pytest.mark.parametrize(("source", "keywords", "said"), [
    (bytes(24), {"dtype": "float32", "shape": (7,)}, r"shape \(7,\): of float32 takes 28 bytes, and there are 24"),
    (bytes(24), {"dtype": "float32", "shape": (2,)}, r"takes 8 bytes, and there are 24 \(pass dlbridge.convert\("),
    (bytes(23), {"dtype": "float32"}, "dtype float32: does not divide 23 bytes"),
    (bytes(24), {"dtype": "float32", "shape": (-1, -1)}, "has a negative extent"),
    (bytes(24), {"dtype": "float32", "shape": (-2, 3)}, "has a negative extent"),
    (bytes(24), {"dtype": "float32", "shape": (0, -1)}, "does not divide 24 bytes"),
    (bytes(24), {"dtype": "float32", "shape": (1 << 62, 1 << 62)}, "is beyond any memory"),
    (b"", {"shape": (0, 1 << 62, 1 << 62)}, "is beyond any memory"),
    (bytes(24), {"dtype": ","}, "is no type that dlbridge knows"),
    (bytes(24), {"dtype": "float32", "shape": (1,) * 65}, "is more than 64"),
    (bytes(24), {"dtype": "flot32"}, r'is no type that dlbridge knows \(did you mean "float32"\?\)'),
    (bytes(24), {"dtype": "U4"}, "is no type that dlbridge knows"),
    (np.zeros(8, "i2"), {"dtype": "float32"}, "is for bytes, and the source has int16"),
    (NUMBERS, {"dtype": "float64"}, r"is for bytes, and the source has float32 \(change the type"),
    (NUMBERS, {"shape": (2, 3)}, r"shape \(2, 3\): is for bytes, and the source has float32"),
    (np.zeros((4, 4), "u1").T, {"dtype": "float32", "shape": (4,)},
     r"is for bytes side by side, and strides are \(1, 4\)"),
    (np.zeros(8, "u1")[::2], {"dtype": "float32"}, r"is for bytes side by side, and strides are \(2,\)"),
    (np.zeros((4, 4), "u1"), {"dtype": "float32"}, r"reads bytes and does not cast, .* \(4, 4\) \(convert first, "),
    (np.array(1, "u1"), {"dtype": "int8"}, r"reads bytes and does not cast, .* shape \(\) "),
    (bytes(24), {"shape": 24}, "is no tuple of integers"),
])
def test_what_is_refused(source, keywords, said):
    with pytest.raises((dlbridge.ConversionError, TypeError), match=f"^convert: .*{said}"):
        dlbridge.convert(source, "numpy", **keywords)


def test_int8_is_bytes_too():
    source = np.arange(8, dtype="i1")
    array = dlbridge.convert(source, "numpy", dtype="uint16", shape=(2, 2))
    assert array.ctypes.data == source.ctypes.data
    assert array.tolist() == source.view("u2").reshape(2, 2).tolist()


def test_no_bytes():
    assert dlbridge.convert(b"", "numpy", dtype="float32").shape == (0,)
    assert dlbridge.convert(b"", "numpy", dtype="float32", shape=(0, 3)).shape == (0, 3)


class Releasing:
    """An extent that takes the memory away from an array while it is read."""

    def __init__(self, array):
        self.array = array

    def __index__(self):
        self.array.resize(16, refcheck=False)
        return 16


def read_after_release():
    array = np.zeros(1 << 25, "u1")
    return dlbridge.convert(array, "numpy", shape=(Releasing(array),), copy=True).tolist()


def test_memory_is_acquired_after_what_a_shape_calls():
    assert each_in_one_child(read_after_release, {"resized": ()}) == {"resized": [0] * 16}


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("dtype", [np.str_("bfloat16"), pytest.param(torch.bfloat16, marks=pytest.mark.needs("torch"))])
def test_a_dtype_is_what_it_says_that_it_is(dtype):
    assert dlbridge.convert(bytearray(8), "dlbridge", dtype=dtype).dtype == "bfloat16"


class Failing:
    @property
    def dtype(self):
        raise OSError("a dtype of mine")

    def __iter__(self):
        yield 8
        raise TypeError("an extent of mine")


@pytest.mark.needs("numpy 2.4")
def test_errors_of_what_is_given_are_not_lost():
    with pytest.raises(OSError, match="a dtype of mine"):
        dlbridge.convert(bytearray(8), "numpy", dtype=Failing())
    with pytest.raises(TypeError, match="is no tuple of integers") as caught:
        dlbridge.convert(bytearray(8), "numpy", shape=Failing())
    assert str(caught.value.__cause__) == "an extent of mine"


@pytest.mark.parametrize(("dtype", "hint"), [
    ("BF16", 'did you mean "bfloat16"?'), ("U8", 'did you mean "uint8"?'), ("F8_E4M3", 'did you mean "float8_e4m3fn"?'),
    ("F64", 'did you mean "float64"?'),
    (np.dtype((np.float64, [("a", "f4"), ("b", "f4")])), "describe it as integers of the same size"),
])
def test_what_is_no_type(dtype, hint):
    with pytest.raises(dlbridge.ConversionError, match="is no type that dlbridge knows") as caught:
        dlbridge.convert(bytearray(8), "numpy", dtype=dtype)
    assert caught.value.hint == hint


@pytest.mark.needs("PIL")
@pytest.mark.parametrize("target", ["numpy", "memoryview", "dlbridge"])
def test_an_image_is_not_cast_by_its_bytes(target):
    """Neither an ndarray nor an image of Pillow: its pixels would be the bytes of other numbers."""
    image = np.arange(24, dtype="u1").reshape(2, 4, 3)
    for source in (image, memoryview(image), dlbridge.asdlpack(image), PIL.Image.fromarray(image)):
        plan = dlbridge.explain(source, target, dtype="float32")
        assert plan.action == "refuse"
        cast = eval(plan.hint.partition(", ")[2].partition(", or ")[0], {"dlbridge": dlbridge, "x": source})
        assert (cast.dtype, cast.tolist()) == ("float32", image.tolist())
        with pytest.raises(dlbridge.ConversionError, match="does not cast"):
            dlbridge.convert(source, target, dtype="float32")
        seen = dlbridge.convert(source, target, dtype="float32", shape=(6,))
        assert dlbridge.convert(seen, "numpy").tobytes() == image.tobytes()


def test_explain_says_that_bytes_are_seen():
    plan = dlbridge.explain(bytes(8), "numpy", dtype="float32")
    assert (plan.action, plan.reason) == ("share", "bytes are seen as float32 of shape (2,)")


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(("name", "dtype"), [("float32", "float32"), ("float16", "float16"), ("float64", "float64"),
                                             ("int16", "int16"), ("uint8", "uint8")])
def test_types_of_arrow(name, dtype):
    assert dlbridge.convert(bytes(16), "numpy", dtype=getattr(pyarrow, name)()).dtype == dtype
    with pytest.raises(dlbridge.ConversionError, match="is no type"):
        dlbridge.convert(bytes(16), "numpy", dtype=pyarrow.string())


# ---- elements of several numbers -------------------------------------------------------------------------------------

class Vertex(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("z", ctypes.c_float))


class Packed(ctypes.Structure):
    _pack_ = 1
    _fields_ = Vertex._fields_


class Derived(Packed):
    _pack_ = 1
    _fields_ = (("w", ctypes.c_float),)


VERTICES = [[1, 2, 3], [4, 5, 6]]
RECORDS = np.array([(1, 2, 3), (4, 5, 6)], [("x", "f4"), ("y", "f4"), ("z", "f4")])
PADDED = np.dtype({"names": ["x", "y", "z"], "formats": ["f4"] * 3, "offsets": [4, 12, 20], "itemsize": 32})


def buffer_of(items, text):
    testbuffer = pytest.importorskip("_testbuffer", reason="this CPython was built without what gives any format")
    return testbuffer.ndarray(items, shape=[len(items)], format=text, flags=testbuffer.ND_WRITABLE)


ELEMENTS = {
    "records": lambda: RECORDS.copy(),
    "a record array": lambda: RECORDS.copy().view(np.recarray),
    "padded records": lambda: RECORDS.astype(PADDED),
    "nested records": lambda: RECORDS.view([("p", [("x", "f4"), ("y", "f4")]), ("z", "f4")]).copy(),
    "records of arrays": lambda: RECORDS.view([("p", "f4", (3,))]).copy(),
    "every other record": lambda: RECORDS.repeat(2)[::2],
    "the other byte order": lambda: RECORDS.astype([(name, ">f4") for name in "xyz"]),
    "structures of C": lambda: (Vertex * 2)((1, 2, 3), (4, 5, 6)),
    "fff": lambda: buffer_of([*map(tuple, VERTICES)], "fff"),
    ">fff": lambda: buffer_of([*map(tuple, VERTICES)], ">fff"),
    "3f": lambda: buffer_of([*map(tuple, VERTICES)], "3f"),
    "f2f": lambda: buffer_of([*map(tuple, VERTICES)], "f2f"),
}


@pytest.mark.parametrize("make", ELEMENTS.values(), ids=ELEMENTS)
def test_numbers_of_one_type_are_a_last_axis(make):
    source = make()
    with pytest.raises(dlbridge.ConversionError, match=r'dlbridge\.convert\(x, to, dtype="float32"\)'):
        dlbridge.asdlpack(source)
    seen = dlbridge.convert(source, "numpy", dtype="float32", copy=False)
    assert seen.tolist() == VERTICES
    assert dlbridge.explain(source, "numpy", dtype="float32").shape == (2, 3)
    seen[1, 2] = 9
    assert dlbridge.convert(source, "dlbridge", dtype="float32").__array__().tolist() == [[1, 2, 3], [4, 5, 9]]
    out = np.zeros((2, 3), "f4")
    dlbridge.convert(source, "numpy", dtype="float32", out=out)
    assert out.tolist() == [[1, 2, 3], [4, 5, 9]]


@pytest.mark.parametrize("make", [ELEMENTS[name] for name in ("records", "structures of C", "fff", "3f")] + [
    lambda: np.frombuffer(RECORDS.tobytes(), "V12"), lambda: (Packed * 2)((1, 2, 3), (4, 5, 6))])
def test_with_a_shape_they_are_bytes(make):
    source = make()
    assert dlbridge.convert(source, "numpy", dtype="float32", shape=(3, -1)).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert dlbridge.convert(source, "numpy", shape=(24,)).tobytes() == RECORDS.tobytes()


def test_records_behind_a_proxy():
    source = RECORDS.copy().view(np.recarray)
    seen = dlbridge.convert(weakref.proxy(source), "numpy", dtype="float32")
    assert np.shares_memory(seen, source)
    text = np.array(["ab"]).view(np.matrix)
    with pytest.raises(dlbridge.ConversionError, match="no DLPack type"):
        dlbridge.convert(weakref.proxy(text), "numpy", dtype="float32")


@pytest.mark.filterwarnings("error")
def test_packed_structures():
    """ctypes says bytes as their format, and NumPy warns of that."""
    source = ((Packed * 2) * 1)(((1, 2, 3), (4, 5, 6)))
    seen = dlbridge.convert(source, "numpy", dtype="float32")
    assert seen.tolist() == [VERTICES]
    seen[0, 1, 2] = 9
    assert source[0][1].z == 9
    assert dlbridge.convert(Packed(1, 2, 3), "numpy", dtype="float32").tolist() == [1, 2, 3]
    # NumPy sees the fields of the class itself alone, at the wrong place.
    x = (Derived * 2)(Derived(1, 2, 3, 4), Derived(5, 6, 7, 8))
    with pytest.raises(dlbridge.ConversionError, match="format 'B' of 16 bytes") as raised:
        dlbridge.convert(x, "numpy", dtype="float32")
    code = raised.value.hint.removeprefix("call ").removesuffix(" for the bytes of its elements")
    assert eval(code, {"dlbridge": dlbridge, "x": x, "to": "numpy"}).view("f4").tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


class Holder(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("a", ctypes.c_byte), ("Object", ctypes.py_object))


class HolderDerived(Holder):
    _pack_ = 1
    _fields_ = (("w", ctypes.c_float),)


class HolderInside(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("a", ctypes.c_byte), ("inside", HolderDerived * 2))


class LooseHolder(ctypes.Structure):
    _fields_ = (("o", ctypes.py_object),)


class LooseDerived(LooseHolder):
    _fields_ = (("w", ctypes.c_float),)


class Named(ctypes.Structure):
    _fields_ = (("Origin", ctypes.c_float), ("b", ctypes.c_int))


class PackedBits(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("low", ctypes.c_uint8, 3), ("w", ctypes.c_float))


class PackedPointer(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("a", ctypes.c_byte), ("w", ctypes.POINTER(ctypes.c_float)))


class LoosePointer(ctypes.Structure):
    _fields_ = (("w", ctypes.POINTER(ctypes.c_float)),)


def test_objects_of_python_are_no_bytes():
    for source in (
        (ctypes.py_object * 2)(), (Holder * 2)(), (HolderDerived * 2)(), (HolderInside * 2)(), (LooseDerived * 2)(),
        memoryview(np.zeros(2, "O")), np.zeros(2, "O,f4"),
    ):
        with pytest.raises(dlbridge.ConversionError):
            dlbridge.convert(source, "numpy", shape=(-1,))
    for kind in (Named, PackedBits, PackedPointer, LoosePointer):
        shape = 2, ctypes.sizeof(kind)
        assert dlbridge.convert((kind * 2)(), "numpy", shape=shape).shape == shape


class Deaf(np.ndarray):
    """A subclass whose items are not those of its memory."""

    def __getitem__(self, where):
        return np.zeros(1, "f4")


@pytest.mark.parametrize("kind", [np.matrix, Deaf])
def test_a_subclass_of_records_is_taken_as_asarray_takes_it(kind):
    source = np.stack([RECORDS, RECORDS]).view(kind)
    assert dlbridge.convert(source, "numpy", dtype="float32").tolist() == [VERTICES, VERTICES]


def test_records_with_masks():
    masked = np.ma.array(RECORDS, mask=[(1, 0, 0), (0, 0, 0)])
    with pytest.raises(dlbridge.UnsupportedError, match="hides 2 of 6 values"):
        dlbridge.convert(np.ma.concatenate([masked, masked])[::2], "numpy")
    for keywords in ({}, {"dtype": "float32"}, {"shape": (-1,)}):
        with pytest.raises(dlbridge.UnsupportedError, match=r"hides 1 of 6 values.*\(pass x\.filled\(0\), or "):
            dlbridge.convert(masked, "numpy", **keywords)
    for whole in (masked.filled(0), np.ma.array(RECORDS), np.ma.array(RECORDS, mask=[(0, 0, 0)] * 2)):
        assert dlbridge.convert(whole, "numpy", dtype="float32")[1].tolist() == VERTICES[1]
        assert dlbridge.convert(whole, "numpy", shape=(-1,)).size == 24


@pytest.mark.needs("ml_dtypes")
def test_a_type_of_ml_dtypes_in_records():
    import ml_dtypes

    source = np.ones(2, [("a", ml_dtypes.bfloat16), ("b", ml_dtypes.bfloat16)])
    assert dlbridge.convert(source, "numpy", dtype="bfloat16").tolist() == [[1, 1], [1, 1]]


FIELDS = r'at even distances \(call dlbridge\.convert_tree\(x, to, columns="pass"\), or pass shape= to read the bytes\)'


@pytest.mark.parametrize(("source", "message"), [
    (np.zeros(2, [("a", "f4"), ("b", "i4")]), FIELDS),
    (np.zeros(2, {"names": ["a", "b", "c"], "formats": ["f4"] * 3, "offsets": [0, 4, 12], "itemsize": 16}), FIELDS),
    (np.zeros(2, {"names": ["a", "b"], "formats": ["f4"] * 2, "offsets": [4, 0], "itemsize": 8}), FIELDS),
    (np.zeros(2, {"names": ["a", "b"], "formats": ["f4"] * 2, "offsets": [0, 2], "itemsize": 8}), FIELDS),
    (np.zeros(2, {"names": ["a", "b"], "formats": ["f4"] * 2, "offsets": [0, 4], "itemsize": 10}), FIELDS),
    (np.zeros(2, [("a", "f4", (2, 2)), ("b", "f8")]), FIELDS),
    (np.zeros(2, [("a", "i4"), ("b", "i4")]), r'the fields are of int32 \(call dlbridge\.convert\(x, to, '
                                              r'dtype="int32"\), or pass shape= to read the bytes\)'),
    (np.zeros(2, [("a", "O")]), r"has no DLPack type \(call dlbridge\.convert_tree"),
    (np.zeros(2, [("a", "f4", (0,))]), FIELDS),
    (np.zeros(2, []), r"has no DLPack type"),
    (np.array(["ab"]), r"has no DLPack type \(pass the code points"),
    (RECORDS.repeat(2)[::2], None),
])
def test_what_has_no_such_axis(source, message):
    if message is None:
        with pytest.raises(dlbridge.ConversionError, match=r"side by side.*\(pass numpy\.ascontiguousarray\(x\)\)"):
            dlbridge.convert(source, "numpy", dtype="float32", shape=(-1,))
    else:
        with pytest.raises(dlbridge.ConversionError, match=message):
            dlbridge.convert(source, "numpy", dtype="float32")
