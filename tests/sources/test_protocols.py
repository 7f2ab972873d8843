"""What can be taken: every PEP 3118 prefix and letter, every way to name a target, and what is refused."""

import array
import ctypes
import enum
import struct
import sys

import array_api_strict
import jax
import numpy as np
import pytest
import torch
from support.buffers import PyBuffer, from_buffer
from support.exporters import ArraySubclass
from support.optional import marked, params

import dlbridge

pytestmark = pytest.mark.quick

PREFIXES = ("@", "=", "<", ">", "!", "")
# letter, name of the type; sizes are native where the prefix is "@" or none, standard otherwise
LETTERS = (
    ("?", "bool"), ("b", "int8"), ("B", "uint8"), ("h", "int16"), ("H", "uint16"), ("i", "int32"), ("I", "uint32"),
    ("l", "int64"), ("L", "uint64"), ("q", "int64"), ("Q", "uint64"), ("n", "int64"), ("N", "uint64"), ("P", "uint64"),
    ("e", "float16"), ("f", "float32"), ("d", "float64"),
    ("Ze", "complex32"), ("Zf", "complex64"), ("Zd", "complex128"),
)
NATIVE_ONLY = "nNP"
STANDARD = {"l": "int32", "L": "uint32"}
ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16,
}
SWAPPING = (">", "!") if struct.pack("=h", 1)[0] else ("<",)




def buffer_of(format_text, itemsize, elements):
    """A memoryview with any format over the bytes of ``elements``."""
    kept = ctypes.create_string_buffer(elements, len(elements))
    shape = (ctypes.c_ssize_t * 1)(len(elements) // itemsize)
    strides = (ctypes.c_ssize_t * 1)(itemsize)
    text = ctypes.create_string_buffer(format_text.encode())
    view = PyBuffer(
        buf=ctypes.addressof(kept), obj=None, len=len(elements), itemsize=itemsize, readonly=0, ndim=1,
        format=ctypes.cast(text, ctypes.c_char_p), shape=shape, strides=strides)
    return from_buffer(view), (kept, shape, strides, text)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_and_letter(prefix):
    for letter, name in LETTERS:
        if prefix in ("@", ""):
            check_letter(prefix, letter, name)
        elif letter not in NATIVE_ONLY:         # PEP 3118 has those in native mode alone
            check_letter(prefix, letter, STANDARD.get(letter, name))


@pytest.mark.parametrize("step", [2, 3, -1, -2])
def test_strided_halves_of_the_other_byte_order(step):
    """complex32 has the word of a float16, which no other strided copy of four bytes has."""
    elements = bytes(range(1, 49))
    view, _kept = buffer_of((">" if sys.byteorder == "little" else "<") + "Ze", 4, elements)
    tensor = dlbridge.asdlpack(view[::step])
    every = [elements[at:at + 4] for at in range(0, 48, 4)][::step]
    assert (tensor.dtype, tensor.strides) == ("complex32", (1,))
    assert ctypes.string_at(tensor.data_ptr, tensor.nbytes) == b"".join(
        bytes([each[1], each[0], each[3], each[2]]) for each in every)


def check_letter(prefix, letter, name):
    itemsize = ITEM_BYTES[name]
    elements = bytes([1, 0] if name == "bool" else range(1, 2 * itemsize + 1))
    view, kept = buffer_of(prefix + letter, itemsize, elements)
    swapped = prefix in SWAPPING and itemsize > 1
    tensor = dlbridge.asdlpack(view)
    assert (tensor.dtype, tensor.shape, tensor.readonly) == (name, (2,), False)
    # Each half of a complex number is swapped by itself.
    word = itemsize // 2 if letter.startswith("Z") else itemsize
    expected = elements
    if swapped:
        expected = b"".join(elements[at:at + word][::-1] for at in range(0, len(elements), word))
    assert ctypes.string_at(tensor.data_ptr, len(elements)) == expected
    assert (tensor.data_ptr == ctypes.addressof(kept[0])) is not swapped
    if swapped:
        with pytest.raises(dlbridge.CopyRequiredError, match="byte order"):
            dlbridge.asdlpack(view, copy=False)


@pytest.mark.parametrize("letter", ["g", "O", "4s", "w", "T{i:a:d:b:}", "t", "Zg", "zz", "&i", "(2)i", "2i"])
@pytest.mark.parametrize("prefix", ["", "<"])
def test_letters_without_a_dlpack_type_are_refused(prefix, letter):
    view, kept = buffer_of(prefix + letter, 16, bytes(32))
    with pytest.raises(dlbridge.ConversionError, match=r"^buffer: format .*\(.+\)$"):
        dlbridge.convert(view, "numpy")
    del kept


@pytest.mark.parametrize(("letter", "itemsize"), [("f", 8), ("d", 4), ("i", 3), ("B", 2), ("?", 4), ("l", 16)])
def test_an_item_size_that_the_letter_cannot_have_is_refused(letter, itemsize):
    view, kept = buffer_of(letter, itemsize, bytes(itemsize * 2))
    with pytest.raises(dlbridge.ConversionError, match="buffer: format"):
        dlbridge.convert(view, "numpy")
    del kept


@pytest.mark.needs("torch")
def test_longdouble_names_the_hint():
    with pytest.raises(dlbridge.ConversionError, match=r'astype\("float64"\)'):
        dlbridge.convert(memoryview(np.zeros(2, np.longdouble)), "torch")


def test_a_buffer_without_a_format_is_unsigned_bytes():
    assert dlbridge.asdlpack(bytearray(b"ab")).dtype == "uint8"


CTYPES = ("c_bool", "c_int8", "c_uint8", "c_int16", "c_uint16", "c_int32", "c_uint32", "c_int64", "c_uint64", "c_long",
          "c_size_t", "c_float", "c_double")


@pytest.mark.parametrize("kind", CTYPES)
def test_ctypes_arrays(kind):
    kind = getattr(ctypes, kind)
    source = (kind * 3)(1, 0, 1)
    result = dlbridge.convert(source, "numpy")
    assert result.tolist() == list(source)
    assert result.ctypes.data == ctypes.addressof(source)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", [kind for kind in CTYPES if hasattr(getattr(ctypes, kind), "__ctype_be__")])
def test_ctypes_arrays_of_either_byte_order(kind):
    kind = getattr(ctypes, kind)
    for order in (kind.__ctype_le__, kind.__ctype_be__):
        source = (order * 3)(1, 0, 1)
        assert dlbridge.convert(source, "torch").tolist() == list(source)


@pytest.mark.needs("torch")
def test_a_big_endian_structure_by_its_field():
    class Header(ctypes.BigEndianStructure):
        _fields_ = (("values", ctypes.c_int32 * 3),)
    header = Header((1, 2, 3))
    assert dlbridge.convert(header.values, "torch").tolist() == [1, 2, 3]
    with pytest.raises(dlbridge.ConversionError, match="buffer: format"):
        dlbridge.convert(header, "torch")


@pytest.mark.needs("torch")
def test_nested_ctypes_arrays_keep_their_shape():
    source = ((ctypes.c_float * 3) * 2)((1, 2, 3), (4, 5, 6))
    assert dlbridge.convert(source, "torch").tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_array_array(code):
    source = array.array(code, [1, 2, 100])
    result = dlbridge.convert(source, "numpy")
    assert result.tolist() == [1, 2, 100]
    assert result.dtype == np.dtype(code)
    with pytest.raises(BufferError):
        source.append(1)
    del result
    source.append(1)


@pytest.mark.parametrize("letter", "?bBhHiIlLqQnNfd")
def test_memoryview_casts(letter):
    source = memoryview(bytearray(struct.pack(f"{6}{letter}", 1, 0, 1, 1, 0, 1))).cast(letter, (2, 3))
    assert dlbridge.convert(source, "numpy").tolist() == source.tolist()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("code", ["i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_numpy_buffers_of_either_byte_order(code, order):
    source = np.arange(1, 7).reshape(2, 3).astype(order + code)
    assert dlbridge.convert(memoryview(source), "torch").tolist() == source.tolist()


# ---- how a target is named -------------------------------------------------------------------------------------------

class Namespace:
    """A namespace of nobody's, with from_dlpack."""

    from_dlpack = staticmethod(np.from_dlpack)


TARGETS = (
    *(marked((to, torch.Tensor), "torch") for to in ("torch", torch, torch.Tensor, torch.zeros(1))),
    *((to, np.ndarray) for to in ("numpy", np, np.ndarray, np.zeros(1))),
    *(marked((to, jax.Array), "jax") for to in ("jax", jax, jax.numpy, jax.Array, jax.numpy.zeros(1))),
    *((to, memoryview) for to in ("memoryview", memoryview, memoryview(b""))),
    *((to, dlbridge.Tensor) for to in ("dlbridge", dlbridge, dlbridge.Tensor, dlbridge.asdlpack(b"x"))),
    ("dlpack", type(dlbridge.to_dlpack(b""))),
    (array_api_strict, type(array_api_strict.zeros(0))),
    (Namespace(), np.ndarray),
)


@pytest.mark.parametrize(("to", "kind"), params(TARGETS), ids=lambda value: repr(value).partition(" at 0x")[0][:40])
def test_a_target_by_name_module_type_array_or_namespace(to, kind):
    result = dlbridge.convert(bytearray(b"\1\2\3"), to)
    assert isinstance(result, kind)


# ---- what is no array ------------------------------------------------------------------------------------------------

def fake_tensor():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode() as mode:
        return mode.from_tensor(torch.zeros(3))


def sparse_scipy():
    import scipy.sparse
    return scipy.sparse.csr_matrix(np.eye(3))


UNSUPPORTED = (
    ("list", lambda: [1, 2], "numpy.asarray"),
    ("tuple", lambda: (1, 2), "numpy.asarray"),
    ("str", lambda: "abc", "encode"),
    ("None", lambda: None, "nothing to convert"),
    ("int", lambda: 7, "numpy.asarray"),
    ("float", lambda: 7.0, "numpy.asarray"),
    ("dict", dict, "values one by one"),
    ("object", object, "__dlpack__"),
    ("scipy sparse", sparse_scipy, "toarray"),
    ("sparse COO", lambda: torch.eye(3).to_sparse(), "to_dense"),
    ("sparse CSR", lambda: torch.eye(3).to_sparse_csr(), "to_dense"),
    ("meta", lambda: torch.zeros(3, device="meta"), "empty_like"),
    ("FakeTensor", fake_tensor, "torch.compile"),
    ("nested", lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "unbind"),
    ("quantized", lambda: torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8), "int_repr"),
    ("type ndarray", lambda: np.ndarray, "pass an instance"),
    ("type Tensor", lambda: torch.Tensor, "pass an instance"),
    ("type bytes", lambda: bytes, "pass an instance"),
    ("type with interface", lambda: ArraySubclass, "pass an instance"),
)


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("make", "hint"), [row[1:] for row in UNSUPPORTED], ids=[row[0] for row in UNSUPPORTED])
@pytest.mark.parametrize("to", params(["numpy", "dlbridge", "memoryview"]))
def test_what_is_no_array_is_refused_with_a_hint(make, hint, to):
    src = make()
    with pytest.raises(dlbridge.UnsupportedError) as caught:
        dlbridge.convert(src, to)
    text = str(caught.value)
    assert hint in text
    assert getattr(src, "__qualname__", type(src).__qualname__) in text or text.startswith("torch:")
    with pytest.raises(TypeError):
        dlbridge.asdlpack(src)


# ---- a device type as the standard writes it -------------------------------------------------------------------------

class DeviceType(enum.Enum):
    CPU = 1


class OfEnum:
    """What the array API standard writes of ``__dlpack_device__``: a pair of an Enum and an int (Open3D)."""

    def __init__(self, memory):
        self.memory = memory

    def __dlpack__(self, **keywords):
        return self.memory.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return DeviceType.CPU, 0

    @staticmethod
    def from_dlpack(x):
        return OfEnum(np.from_dlpack(x))


def test_a_device_type_may_be_an_enum():
    source = np.arange(3.0)
    assert dlbridge.convert(OfEnum(source), "numpy", copy=False).ctypes.data == source.ctypes.data
    assert dlbridge.convert(source, OfEnum(np.zeros(1))).memory.ctypes.data == source.ctypes.data
    for device in ((DeviceType.CPU, 0), (DeviceType.CPU, None)):
        assert dlbridge.convert(source, "numpy", device=device) is source
        assert dlbridge.convert(OfEnum(source), "numpy", device=device).ctypes.data == source.ctypes.data
        assert np.from_dlpack(dlbridge.asdlpack(source)).ctypes.data == source.ctypes.data
    made = dlbridge.asdlpack(source).__dlpack__(dl_device=(DeviceType.CPU, 0))
    assert dlbridge.convert(made, "numpy").ctypes.data == source.ctypes.data


def test_an_enum_without_a_number_is_no_device():
    word = enum.Enum("Word", {"CPU": "cpu"}).CPU
    with pytest.raises(dlbridge.DeviceError, match="is no device"):
        dlbridge.convert(np.zeros(1), "numpy", device=(word, 0))
    wrong = type("Wrong", (OfEnum,), {"__dlpack_device__": lambda self: (word, 0)})(np.zeros(1))
    with pytest.raises(dlbridge.ConversionError, match="is not a pair"):
        dlbridge.convert(wrong, "numpy")
