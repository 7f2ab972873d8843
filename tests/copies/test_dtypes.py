"""Every dtype between NumPy (with ml_dtypes), torch and JAX: the same bits, in the same memory."""

import ctypes
import pathlib
import sys
import warnings

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
from support.exporters import aligned, enable_x64
from support.hints import code_in
from support.optional import params
from support.tools import load_tool

import dlbridge

pytestmark = pytest.mark.needs("jax")

NUMPY_NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
               "float64", "complex64", "complex128")
ML_NAMES = ("complex32", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
            "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
            "float4_e2m1fn", "int4", "uint4")
NAMES = NUMPY_NAMES + ML_NAMES
SUBBYTE = {"float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4, "int4": 4, "uint4": 4}
WIDE = ("int64", "uint64", "float64", "complex128")

# What each library has, written down here and not taken from dlbridge. torch keeps float4 in pairs; its int4 and uint4
# are names without operations, and JAX 0.10 can not make float6 on the CPU.
LACKING = {
    "numpy": set(),
    "torch": {"float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float6_e2m3fn", "float6_e3m2fn", "int4", "uint4"},
    "jax": {"complex32", "float6_e2m3fn", "float6_e3m2fn"},
}
COPIED = {("torch", "float4_e2m1fn"), ("jax", "float4_e2m1fn"), ("jax", "int4"), ("jax", "uint4")}


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def sample(name, shape):
    """An aligned array with every bit of the type in use, except that booleans are 0 or 1."""
    array = aligned(shape, numpy_dtype(name))
    raw = np.arange(array.nbytes) * 37 + 11
    limit = 2 if name == "bool" else 1 << SUBBYTE.get(name, 8)
    array.reshape(-1).view(np.uint8)[:] = raw % limit
    return array


def bits_of(array):
    """The elements' bytes in C order, by each library's own means."""
    if isinstance(array, torch.Tensor):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "ComplexHalf")
            return array.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return np.asarray(array).tobytes()


def address_of(array):
    if isinstance(array, torch.Tensor):
        return array.data_ptr()
    return array.unsafe_buffer_pointer() if isinstance(array, jax.Array) else array.ctypes.data


LAYOUTS = {
    "contiguous": lambda array: array,
    "strided": lambda array: array[::2, 1:],
    "transposed": lambda array: array.T,
    "0-d": lambda array: array[0, 0, ...],
    "empty": lambda array: array[:0],
}


@pytest.fixture(autouse=True)
def x64():
    with enable_x64(True):
        yield


CASES = [
    pytest.param(library, name, id=f"{library}-{name}")
    for library in ("torch", "jax") for name in NAMES
]


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize(("library", "name"), CASES)
def test_from_numpy_bit_for_bit(library, name):
    for layout, change in LAYOUTS.items():
        source = change(sample(name, (4, 6)))
        if name in LACKING[library]:
            with pytest.raises(dlbridge.ConversionError, match=f"^{library}: dtype .*{name}.*{library} does not have"):
                dlbridge.convert(source, library)
            continue
        if library == "torch" and name == "float4_e2m1fn":
            continue        # test_float4_between_pairs_and_bytes
        result = dlbridge.convert(source, library, readonly="share")
        assert str(result.dtype).removeprefix("torch.") == name
        assert tuple(result.shape) == source.shape
        assert bits_of(result) == source.tobytes()
        copied = (library, name) in COPIED or (library == "jax" and layout == "strided")
        if not copied and source.ctypes.data % 64 == 0 and source.size:
            assert address_of(result) == source.ctypes.data, layout
        if copied and source.size > 1:
            with pytest.raises(dlbridge.CopyRequiredError):
                dlbridge.convert(source, library, copy=False)


def in_torch(name, shape):
    """A torch tensor of the type, made by torch from the same bytes."""
    array = sample(name, shape)
    if name == "bool":
        return torch.from_numpy(array), array
    dtype = getattr(torch, name)
    return torch.from_numpy(array.reshape(-1).view(np.uint8)).view(dtype).reshape(shape), array


TORCH_NAMES = [name for name in NAMES if name not in LACKING["torch"] and name != "float4_e2m1fn"]


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("name", TORCH_NAMES)
def test_from_torch_to_numpy_bit_for_bit(name):
    for change in (*list(LAYOUTS.values())[:2], lambda t: t.permute(1, 0), lambda t: t[0, 0], lambda t: t[:0]):
        tensor = change(in_torch(name, (4, 6))[0])
        result = dlbridge.convert(tensor, "numpy", copy=False)
        assert (result.dtype, result.shape) == (numpy_dtype(name), tuple(tensor.shape))
        assert result.tobytes() == bits_of(tensor)
        assert address_of(result) == address_of(tensor) or not tensor.numel()


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("name", TORCH_NAMES)
def test_from_torch_to_jax_bit_for_bit(name):
    tensor, array = in_torch(name, (4, 6))
    if name in LACKING["jax"]:
        with pytest.raises(dlbridge.ConversionError, match=f"jax: dtype {name}"):
            dlbridge.convert(tensor, "jax")
        return
    result = dlbridge.convert(tensor, "jax", copy=False, readonly="share")
    assert result.dtype.name == name
    assert bits_of(result) == array.tobytes()
    assert address_of(result) == tensor.data_ptr()


# JAX has int4 and uint4, but its own __dlpack__ raises for them, and that error is the user's to see.
JAX_NAMES = [
    name for name in NAMES if name not in LACKING["jax"] and name not in ("float4_e2m1fn", "int4", "uint4")]


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("name", JAX_NAMES)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_from_jax_bit_for_bit(library, name):
    for shape in ((4, 6), (), (0, 3)):
        source = jax.numpy.asarray(sample(name, shape))
        if name in LACKING[library]:
            with pytest.raises(dlbridge.ConversionError, match=f"{library}: dtype {name}"):
                dlbridge.convert(source, library)
            continue
        result = dlbridge.convert(source, library, readonly="share", **({} if "int4" in name else {"copy": False}))
        assert str(result.dtype).removeprefix("torch.") == name
        assert (tuple(result.shape), bits_of(result)) == (shape, bits_of(source))
        if "int4" not in name and source.size:
            assert address_of(result) == address_of(source)


# ---- scalars ---------------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize(("library", "name"), [
    pytest.param(library, name, id=f"{library}-{name}") for library in ("numpy", "torch", "jax") for name in NAMES
    if name not in LACKING[library] and (library, name) != ("torch", "float4_e2m1fn")])      # which it has in pairs
def test_scalars_are_arrays_without_axes(library, name):
    scalar = numpy_dtype(name).type(1)
    expected = dlbridge.convert(np.array([scalar]), library)[0]
    for array in (dlbridge.convert(scalar, library), dlbridge.convert_tree({"a": [scalar]}, library)["a"][0]):
        assert (array.shape, array.dtype) == ((), expected.dtype)
        assert bits_of(array) == bits_of(expected)
    plan = dlbridge.explain(scalar, library)
    assert (plan.action, plan.shape, plan.dtype) == ("copy", (), name)


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in LACKING["numpy"]])
def test_the_memory_of_a_scalar_is_shared_read_only(name):
    scalar = numpy_dtype(name).type(1)
    address = np.ndarray((), scalar.dtype, scalar).ctypes.data
    array = dlbridge.convert(scalar, "numpy", copy=False)
    assert (array.shape, array.dtype, array.ctypes.data, array.flags.writeable) == ((), scalar.dtype, address, False)
    assert bits_of(array) == bits_of(np.array(scalar))
    assert dlbridge.explain(scalar, "numpy", copy=False).action == "share"
    held = sys.getrefcount(scalar)
    del array
    assert sys.getrefcount(scalar) == held - 1
    if name not in LACKING["torch"] and "float4" not in name:
        with pytest.raises(dlbridge.CopyRequiredError, match='readonly="share"'):
            dlbridge.convert(scalar, "torch", copy=False)
        assert dlbridge.convert(scalar, "torch", copy=False, readonly="share").data_ptr() == address


@pytest.mark.parametrize("dtype", [
    np.dtype("O"), np.dtype("f4"), property(lambda scalar: 1 / 0)], ids=["object", "float32", "none"])
def test_a_subclass_may_say_any_dtype(dtype):
    scalar = type("Number", (np.float64,), {"dtype": dtype})(3.5)
    assert dlbridge.convert(scalar, "numpy", copy=False).tolist() == 3.5


@pytest.mark.parametrize("scalar", [np.datetime64(1, "s"), np.str_("a"), np.void(b"abc"), np.longdouble(1)], ids=repr)
def test_scalars_that_dlpack_has_no_type_for(scalar):
    with pytest.raises(dlbridge.ConversionError, match=r"numpy: dtype .* has no DLPack type"):
        dlbridge.convert(scalar, "numpy")


# ---- float4 ----------------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch", "ml_dtypes")
def test_float4_between_pairs_and_bytes():
    """Packed, element i lies at bit 4 * i: the low nibble comes first (DLPack 1.1)."""
    padded = sample("float4_e2m1fn", (3, 4))
    nibbles = padded.view(np.uint8)
    pairs = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    tensor = dlbridge.convert(padded, "torch")
    assert (tensor.dtype, tensor.shape) == (torch.float4_e2m1fn_x2, (3, 2))
    assert bits_of(tensor) == pairs.tobytes()
    back = dlbridge.convert(tensor, "numpy")
    assert (back.dtype, back.shape) == (padded.dtype, padded.shape)
    assert back.tobytes() == padded.tobytes()
    in_jax = dlbridge.convert(tensor, "jax")
    assert (in_jax.dtype, in_jax.shape) == (padded.dtype, padded.shape)
    assert np.asarray(in_jax).tobytes() == padded.tobytes()
    assert bits_of(dlbridge.convert(in_jax, "torch")) == pairs.tobytes()
    assert dlbridge.convert(in_jax, "numpy").tobytes() == padded.tobytes()


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("change", [LAYOUTS["strided"], lambda a: a[:, ::-1], LAYOUTS["transposed"]])
def test_float4_in_any_layout(change):
    padded = change(sample("float4_e2m1fn", (6, 7 if change is LAYOUTS["strided"] else 4)))
    nibbles = np.ascontiguousarray(padded).view(np.uint8)
    assert np.asarray(dlbridge.convert(padded, "jax")).tobytes() == nibbles.tobytes()
    assert bits_of(dlbridge.convert(padded, "torch")) == (nibbles[:, ::2] | nibbles[:, 1::2] << 4).tobytes()


@pytest.mark.needs("ml_dtypes")
@pytest.mark.needs("torch 2.10")
def test_transposed_pairs():
    tensor = dlbridge.convert(sample("float4_e2m1fn", (6, 4)), "torch")
    assert dlbridge.convert(tensor.T, "numpy").tobytes() == dlbridge.convert(tensor.T.contiguous(), "numpy").tobytes()


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("name", SUBBYTE)
def test_transposed_elements_below_a_byte_in_a_legacy_capsule(name):
    padded = sample(name, (6, 4)).T
    assert dlbridge.convert(dlbridge.to_dlpack(padded), "numpy").tobytes() == padded.tobytes()


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("name", SUBBYTE)
def test_elements_below_a_byte_are_packed_low_bits_first(name):
    padded = sample(name, (5, 3))
    bits = "".join(f"{value:0{SUBBYTE[name]}b}"[::-1] for value in padded.view(np.uint8).ravel())
    packed = bytes(int(bits[at:at + 8][::-1], 2) for at in range(0, len(bits), 8))
    tensor = dlbridge.asdlpack(dlbridge.to_dlpack(padded))
    assert ctypes.string_at(tensor.data_ptr, tensor.nbytes) == packed
    assert dlbridge.convert(tensor, "numpy").tobytes() == padded.tobytes()


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("target", params(["torch", "jax"]))
def test_float4_from_numpy_needs_a_copy(target):
    with pytest.raises(dlbridge.CopyRequiredError, match="another place"):
        dlbridge.convert(sample("float4_e2m1fn", (2, 4)), target, copy=False)


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("target", ["numpy", "jax"])
def test_float4_from_torch_needs_a_copy(target):
    tensor = dlbridge.convert(sample("float4_e2m1fn", (2, 4)), "torch")
    with pytest.raises(dlbridge.CopyRequiredError, match="another place"):
        dlbridge.convert(tensor, target, copy=False)


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("shape", [(3,), (2, 3), ()])
def test_float4_that_cannot_be_paired_is_refused(shape):
    with pytest.raises(dlbridge.ConversionError, match="last axis"):
        dlbridge.convert(sample("float4_e2m1fn", shape), "torch")


# ---- byte order ------------------------------------------------------------------------------------------------------

@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("name", [name for name in NUMPY_NAMES if np.dtype(name).itemsize > 1])
@pytest.mark.parametrize("target", params(["torch", "jax", "memoryview", "dlbridge", "dlpack"]))
def test_the_other_byte_order_is_a_swapped_copy(name, target):
    native = sample(name, (3, 4))
    foreign = native.astype(native.dtype.newbyteorder())
    with pytest.raises(dlbridge.CopyRequiredError, match="byte order"):
        dlbridge.convert(foreign, target, copy=False)
    result = dlbridge.convert(foreign[:, ::2], target)
    assert dlbridge.convert(result, "numpy").tobytes() == native[:, ::2].tobytes()


def test_numpy_holds_the_other_byte_order_itself():
    foreign = memoryview(np.arange(3, dtype=np.dtype("i4").newbyteorder()))
    result = dlbridge.convert(foreign, "numpy", copy=False)
    assert result.tolist() == [0, 1, 2]
    assert not result.dtype.isnative


@pytest.mark.needs("torch")
@pytest.mark.parametrize("make", [
    lambda: np.arange(6).astype("bfloat16")[::2],
    lambda: dlbridge.asdlpack(np.arange(6).astype("bfloat16")[::2]),
    lambda: torch.arange(6).bfloat16()[::2],
], ids=["ndarray", "Tensor", "torch"])
def test_the_bits_of_a_type_that_a_target_lacks(make):
    x = make()
    with pytest.raises(dlbridge.ConversionError, match="is a type that memoryview does not have") as raised:
        dlbridge.convert(x, "memoryview")
    code, = code_in(raised.value.hint, ("numpy",))
    bits = eval(code, {"numpy": np, "dlbridge": dlbridge, "torch": torch, "x": x})
    assert dlbridge.convert(bits, "memoryview").tobytes() == np.array([0, 2, 4]).astype("bfloat16").tobytes()


# ---- what DLPack has no type for -------------------------------------------------------------------------------------

REFUSED = (
    ("datetime64", np.zeros(2, "M8[s]"), 'view("i8")'),
    ("timedelta64", np.zeros(2, "m8[s]"), 'view("i8")'),
    ("longdouble", np.zeros(2, np.longdouble), 'astype("float64")'),
    ("clongdouble", np.zeros(2, np.clongdouble), 'astype("complex128")'),
    ("structured", np.zeros(2, [("a", "i4"), ("b", "f8")]), "x['a']"),
    ("void", np.zeros(2, "V6"), 'view("uint8")'),
    ("object", np.array([1, 2.5], object), 'x.astype("float64")'),
    ("integers", np.zeros(2, object), 'x.astype("int64")'),
    ("bytes", np.zeros(2, "S4"), 'view("uint8")'),
    ("str", np.zeros(2, "U4"), 'view("u4")'),
    ("StringDType", np.zeros(2, np.dtypes.StringDType()), 'tolist()).view("u4")'),
)


@pytest.mark.parametrize(("source", "hint"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
@pytest.mark.parametrize("target", params(["torch", "jax", "memoryview", "dlpack", "dlbridge"]))
def test_other_types_are_refused_with_a_hint(source, hint, target):
    with pytest.raises(dlbridge.ConversionError) as caught:
        dlbridge.convert(source, target)
    assert str(caught.value).startswith(f"numpy: dtype {source.dtype}:")
    assert hint in str(caught.value)


# ---- the table in the documentation ----------------------------------------------------------------------------------

@pytest.mark.needs("torch", "jax before 0.12")
def test_the_documented_table_is_what_happens():
    root = pathlib.Path(__file__).parents[2]
    assert (root / "docs" / "dtypes.md").read_text() == load_tool("pages/dtypes_page").page(), (
        "run python tools/pages dtypes")
