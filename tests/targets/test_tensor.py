"""dlbridge.Tensor: every attribute, and every protocol it speaks."""

import copy
import ctypes
import functools
import gc
import hashlib
import hmac
import itertools
import pickle
import threading
import weakref
import zlib

import ml_dtypes
import numpy as np
import pyarrow
import pytest
import torch
from support.children import in_child
from support.exporters import get_buffer, make_read_only, numbered, release_buffer
from support.importers import CapsuleProducer, capsule_name, capsule_struct, read_bits
from support.optional import marked

import dlbridge
from dlbridge.testing.abi import IS_COPIED, READ_ONLY

pytestmark = pytest.mark.quick


@pytest.fixture
def source():
    return numbered((4, 6), "int16")


@pytest.fixture
def tensor(source):
    return dlbridge.asdlpack(source)


# ---- attributes ------------------------------------------------------------------------------------------------------

def test_attributes(source):
    view = source[::-1, ::2]
    tensor = dlbridge.asdlpack(view)
    assert tensor.shape == (4, 3)
    assert tensor.strides == (-6, 2)
    assert (tensor.ndim, tensor.size, tensor.itemsize, tensor.nbytes) == (2, 12, 2, 24)
    assert (tensor.dtype, tensor.device, tensor.readonly) == ("int16", "cpu", False)
    assert (tensor.data_ptr, tensor.byte_offset) == (view.ctypes.data, 0)
    assert tensor.protocol == "numpy"
    assert tensor.owner is view


@pytest.mark.needs("ml_dtypes")
def test_attributes_of_packed_elements():
    tensor = dlbridge.asdlpack(dlbridge.to_dlpack(np.zeros((3, 5), ml_dtypes.float4_e2m1fn)))
    assert (tensor.dtype, tensor.size, tensor.itemsize, tensor.nbytes) == ("float4_e2m1fn", 15, 0, 8)


# ---- as an ndarray ---------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "complex64", "bfloat16", "float8_e4m3fn"])
def test_its_dtype_is_a_dtype_of_numpy_and_equal_to_its_name(name):
    tensor = dlbridge.asdlpack(torch.ones(2, 3, dtype=getattr(torch, name)))
    assert isinstance(tensor.dtype, np.dtype)
    assert tensor.dtype == name == str(tensor.dtype)
    array = np.asarray(tensor)
    assert array.dtype == tensor.dtype
    assert array.ctypes.data == tensor.data_ptr
    assert array.astype("c8").tolist() == [[1, 1, 1], [1, 1, 1]]
    copied = np.array(tensor, copy=True)
    assert copied.ctypes.data != tensor.data_ptr
    assert np.asarray(tensor, dtype="c16").tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.needs("torch")
def test_its_dtype_is_a_name_where_numpy_has_no_such_dtype():
    tensor = dlbridge.asdlpack(torch.zeros(2, dtype=torch.float4_e2m1fn_x2))
    assert (type(tensor.dtype), tensor.dtype) == (str, "float4_e2m1fn_x2")
    with pytest.raises(dlbridge.MissingLibraryError):
        np.asarray(tensor)



@pytest.mark.needs("torch")
@in_child
def test_its_dtype_is_a_name_without_ml_dtypes():
    import sys

    sys.modules["ml_dtypes"] = None
    import torch

    import dlbridge

    assert repr(dlbridge.asdlpack(torch.zeros(2, dtype=torch.bfloat16)).dtype) == "'bfloat16'"


@pytest.mark.parametrize("array", [np.uint8(53), np.array(True), np.array(-2.5, "f4"), np.array([[7]])], ids=str)
def test_a_number(array):
    tensor = dlbridge.asdlpack(array)
    assert (int(tensor), float(tensor), bool(tensor)) == (int(array.item()), float(array.item()), bool(array.item()))
    assert (int(dlbridge.asdlpack(b"5")), float(dlbridge.asdlpack(b"5"))) == (53, 53.0)      # not the text


@pytest.mark.parametrize("array", [np.zeros(0), np.ones(2), np.frombuffer(b"53", "u1")], ids=["none", "two", "text"])
def test_what_is_no_number(array):
    tensor = dlbridge.asdlpack(array)
    for function, error in (int, TypeError), (float, TypeError), (bool, ValueError):
        with pytest.raises(error, match=r"^Tensor: shape .*: has not one element \(.*numpy"):
            function(tensor)


def test_a_length_elements_and_rows(source, tensor):
    assert len(tensor) == 4
    assert (tensor[1, 2], tensor[-1].tolist()) == (source[1, 2], source[-1].tolist())
    assert tensor[::2].ctypes.data == source.ctypes.data
    assert [row.tolist() for row in tensor] == source.tolist()
    assert source[0, 3] in dlbridge.asdlpack(source[0])
    for function in len, iter:
        with pytest.raises(TypeError):
            function(dlbridge.asdlpack(np.array(1)))


def test_bytes_side_by_side_for_what_wants_nothing_else(source, tensor):
    for function in hashlib.sha256, functools.partial(hmac.digest, b"key", digest="md5"), zlib.crc32, bytes:
        made, expected = function(tensor), function(source)
        assert getattr(made, "digest", lambda made=made: made)() == getattr(
            expected, "digest", lambda expected=expected: expected)()
    with pytest.raises(BufferError):
        zlib.crc32(dlbridge.asdlpack(source.T))


@pytest.mark.needs("torch", "jax", "ml_dtypes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_jax_takes_it(dtype):
    import jax

    made = jax.numpy.asarray(dlbridge.asdlpack(torch.ones(2, 3, dtype=dtype)))
    assert (str(made.dtype), made.tolist()) == (str(dtype).partition(".")[2], [[1, 1, 1], [1, 1, 1]])


@pytest.mark.needs("torch")
def test_torch_takes_it():
    """torch.asarray() asks for a buffer first and takes its bytes for float32, as of any buffer."""
    for dtype in torch.float32, torch.int16, torch.bfloat16:
        expected = torch.ones(2, 3, dtype=dtype)
        for function in torch.as_tensor, torch.tensor:
            made = function(dlbridge.asdlpack(expected))
            assert made.dtype == dtype
            assert torch.equal(made, expected)


@pytest.mark.needs("PIL")
def test_pillow_takes_it():
    from PIL import Image

    pixels = numbered((4, 6), "uint8")
    image = Image.fromarray(dlbridge.asdlpack(pixels))
    assert (image.size, list(image.tobytes())) == ((6, 4), pixels.ravel().tolist())
    assert dlbridge.asdlpack(pixels).__array_interface__["strides"] is None
    assert dlbridge.asdlpack(pixels.T).__array_interface__["strides"] == (1, 6)


@pytest.mark.needs("ml_dtypes")
@pytest.mark.needs("safetensors")
def test_safetensors_takes_it():
    """It reads on from the address, whatever the strides are."""
    from safetensors.numpy import load, save

    array = np.arange(6, dtype="f4").reshape(2, 3)
    assert load(save({"a": dlbridge.asdlpack(array)}))["a"].tolist() == array.tolist()
    for tensor in dlbridge.asdlpack(array.T), dlbridge.asdlpack(array[:, ::2]):
        with pytest.raises(AttributeError, match=r"numpy\.ascontiguousarray"):
            save({"a": tensor})
        assert load(save({"a": np.ascontiguousarray(tensor)}))["a"].tolist() == np.asarray(tensor).tolist()


def test_its_elements_in_one_axis():
    array = np.arange(6, dtype="f4").reshape(2, 3)
    assert dlbridge.asdlpack(array).ravel().ctypes.data == array.ctypes.data
    assert dlbridge.asdlpack(array.T).ravel().tolist() == array.T.ravel().tolist()


@pytest.mark.needs("ml_dtypes")
def test_packed_elements_are_no_memory_of_numpy():
    tensor = dlbridge.asdlpack(dlbridge.to_dlpack(np.zeros((3, 5), ml_dtypes.float4_e2m1fn)))
    assert type(tensor.dtype) is str
    with pytest.raises(TypeError, match=r"^Tensor: float4_e2m1fn on cpu: is no memory of NumPy"):
        np.asarray(tensor)


@pytest.mark.parametrize("name", ["shape", "strides", "ndim", "size", "itemsize", "nbytes", "dtype", "device",
                                  "readonly", "data_ptr", "byte_offset", "protocol", "owner"])
def test_attributes_are_read_only(tensor, name):
    with pytest.raises(AttributeError):
        setattr(tensor, name, getattr(tensor, name))


def test_it_is_not_made_by_its_class():
    with pytest.raises(TypeError, match="asdlpack"):
        dlbridge.Tensor()


@in_child
def test_a_bare_instance_does_not_crash():
    """__new__ is not __init__: an instance that nobody filled has no memory to speak of."""
    import contextlib

    import dlbridge

    with contextlib.suppress(TypeError):
        print(dlbridge.Tensor.__new__(dlbridge.Tensor))


def test_repr(source, tensor):
    text = repr(tensor)
    for part in ("dlbridge.Tensor", "(4, 6)", "(6, 1)", "int16", "cpu", "readonly=False", "numpy",
                 hex(tensor.data_ptr)):
        assert part in text


def test_repr_html(tensor):
    from xml.etree import ElementTree
    table = ElementTree.fromstring(tensor._repr_html_())
    cells = {row[0].text: row[1].text for row in table.iter("tr")}
    assert cells["shape"] == "(4, 6)"
    assert cells["dtype"] == "int16"


def test_equality_and_hash_are_by_identity(source, tensor):
    other = dlbridge.asdlpack(source)
    assert tensor != other
    assert len({tensor, other, tensor}) == 2
    assert {tensor: 1}[tensor] == 1


def test_a_weak_reference_ends_with_the_tensor(source):
    tensor = dlbridge.asdlpack(source)
    reference = weakref.ref(tensor)
    assert reference() is tensor
    del tensor
    assert reference() is None


# ---- read-only memory ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 3)], ids=str)
def test_read_only_memory_stays_so_whatever_its_shape(shape):
    """Broadcast or not: one element has a stride of 0 as well as any other."""
    alone = np.zeros(shape)
    alone.flags.writeable = False
    for source in (alone, np.broadcast_to(np.float32(1), shape)):
        tensor = dlbridge.asdlpack(source)
        assert tensor.readonly
        assert not np.asarray(tensor).flags.writeable
        assert memoryview(tensor).readonly
        assert dlbridge.explain(source, "dlpack").action == "copy"
        with pytest.raises(dlbridge.CopyRequiredError, match=r'max_version=\(1, 0\), or make the Tensor with'):
            tensor.__dlpack__(copy=False)
        shared = dlbridge.asdlpack(tensor.__dlpack__(copy=False, max_version=(1, 3)))
        assert (shared.readonly, shared.data_ptr) == (True, tensor.data_ptr)


# ---- the buffer protocol ---------------------------------------------------------------------------------------------

WRITABLE, FORMAT, ND, STRIDES = 0x001, 0x004, 0x008, 0x018
C, F, ANY, INDIRECT = 0x038, 0x058, 0x098, 0x118
BUFFER_LAYOUTS = {"simple": 0, "nd": ND, "strides": STRIDES, "C": C, "F": F, "any": ANY, "indirect": INDIRECT}
ARRAYS = {
    "C": (lambda: numbered((2, 3)), {"simple", "nd", "strides", "C", "any", "indirect"}),
    "F": (lambda: numbered((2, 3)).T, {"strides", "F", "any", "indirect"}),
    "1-d": (lambda: numbered((6,)), set(BUFFER_LAYOUTS)),
    "0-d": (lambda: numbered(()), set(BUFFER_LAYOUTS)),
    "empty": (lambda: numbered((0, 3)), set(BUFFER_LAYOUTS)),
    "holes": (lambda: numbered((4, 6))[:, ::2], {"strides", "indirect"}),
    "backwards": (lambda: numbered((6,))[::-1], {"strides", "indirect"}),
}


@pytest.mark.parametrize("readonly", [False, True], ids=["writable", "read-only"])
@pytest.mark.parametrize("array", ARRAYS)
def test_every_combination_of_buffer_flags(array, readonly):
    make, layouts = ARRAYS[array]
    source = make()
    source.flags.writeable = not readonly
    tensor = dlbridge.asdlpack(source)
    for layout, writable, formatted in itertools.product(BUFFER_LAYOUTS, [0, WRITABLE], [0, FORMAT]):
        flags = BUFFER_LAYOUTS[layout] | writable | formatted
        if layout not in layouts or (readonly and writable):
            with pytest.raises(BufferError, match=r"^buffer: (strides|flags) .*\(.+\)$"):
                get_buffer(tensor, flags)
        else:
            check_buffer(tensor, source, flags, readonly)


def check_buffer(tensor, source, flags, readonly):
    view = get_buffer(tensor, flags)
    try:
        assert view.buf == source.ctypes.data or not source.size
        assert (view.len, view.itemsize, view.ndim) == (source.nbytes, 4, source.ndim if flags & ND == ND else 1)
        assert bool(view.readonly) is readonly
        assert view.format == (b"f" if flags & FORMAT else None)
        if flags & ND == ND and source.ndim:
            assert tuple(view.shape[:view.ndim]) == source.shape
        elif flags & ND != ND:
            assert not view.shape
        if flags & STRIDES == STRIDES and source.ndim and source.size:
            assert tuple(view.strides[:view.ndim]) == source.strides
        elif flags & STRIDES != STRIDES:
            assert not view.strides
        assert not view.suboffsets
    finally:
        release_buffer(view)


def test_a_memoryview_holds_the_tensor():
    source = numbered((4, 6))
    reference = weakref.ref(source.base)
    view = memoryview(dlbridge.asdlpack(source))
    before = source.tobytes()
    del source
    gc.collect()
    assert reference() is not None
    assert view.tobytes() == before
    view.release()
    gc.collect()
    assert reference() is None


# ---- the other host protocols ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("readonly", [False, True], ids=["writable", "read-only"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64", "complex64", "complex128"])
def test_array_interface_and_struct(dtype, readonly):
    class Only:
        def __init__(self, face, value):
            setattr(self, face, value)
    source = numbered((4, 6), dtype)[::-1, ::2]
    if dtype == "bool":
        source[:] = False
    source.flags.writeable = not readonly
    tensor = dlbridge.asdlpack(source)
    interface = tensor.__array_interface__
    expected = source.__array_interface__
    assert {key: interface[key] for key in ("shape", "typestr", "data", "strides", "version")} == {
        key: expected[key] for key in ("shape", "typestr", "data", "strides", "version")}
    for face in ("__array_interface__", "__array_struct__"):
        array = np.asarray(Only(face, getattr(tensor, face)))
        assert (array.dtype, array.shape, array.strides) == (source.dtype, source.shape, source.strides)
        assert array.ctypes.data == source.ctypes.data
        assert array.flags.writeable is not readonly


def test_array_struct_keeps_the_memory():
    source = numbered((4, 6))
    reference = weakref.ref(source.base)
    capsule = dlbridge.asdlpack(source).__array_struct__
    del source
    gc.collect()
    assert reference() is not None
    del capsule
    gc.collect()
    assert reference() is None


def elsewhere():
    capsule = numbered((3,)).__dlpack__()
    capsule_struct(capsule).dl_tensor.device.device_type = 8
    return capsule


@pytest.mark.parametrize("make", [
    elsewhere, marked(lambda: np.zeros(3, ml_dtypes.bfloat16), "ml_dtypes"),
    marked(lambda: dlbridge.to_dlpack(np.zeros(4, ml_dtypes.int4)), "ml_dtypes")])
def test_faces_that_the_memory_cannot_have(make):
    tensor = dlbridge.asdlpack(make())
    for face in ("__array_interface__", "__array_struct__", "__cuda_array_interface__"):
        assert not hasattr(tensor, face)
    with pytest.raises(BufferError, match="no PEP 3118 form"):
        memoryview(tensor)
    assert hasattr(tensor, "__dlpack__")


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("view", [np.asarray, np.transpose, lambda array: array[:, ::2], lambda array: array[1, 1]])
def test_the_bytes_of_what_has_no_buffer(view):
    array = view(np.ones((2, 3), ml_dtypes.bfloat16))
    x = dlbridge.asdlpack(np.asarray(array))
    with pytest.raises(BufferError, match="no PEP 3118 form") as raised:
        memoryview(x)
    code = raised.value.hint.removeprefix("pass its bytes, ").removesuffix(", or use __dlpack__")
    made = eval(code, {"numpy": np, "dlbridge": dlbridge, "x": x})
    assert memoryview(made).nbytes == array.nbytes


# ---- Arrow's face ----------------------------------------------------------------------------------------------------

def frozen_copy(array):
    array = np.array(array)
    array.flags.writeable = False
    return array


OF_ARROW = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("dtype", OF_ARROW)
def test_arrow_takes_numbers_with_one_axis(dtype):
    source = frozen_copy(np.arange(5, dtype=dtype))
    made = pyarrow.array(dlbridge.asdlpack(source))
    assert (str(made.type.to_pandas_dtype().__name__), made.to_pylist()) == (dtype, source.tolist())
    assert made.buffers()[1].address == source.ctypes.data
    assert dlbridge.convert(made, "numpy", copy=False).ctypes.data == source.ctypes.data


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("make", [
    lambda: np.arange(6.0)[::2], lambda: np.arange(6.0)[::-1], lambda: np.arange(3, dtype=">i4"), lambda: np.zeros(0),
    lambda: np.frombuffer(bytearray(13), "u1")[1:].view("f4"), lambda: np.arange(3.0)])
def test_arrow_takes_a_copy_of_what_it_cannot_share(make):
    source = make()
    made = pyarrow.array(dlbridge.asdlpack(source))
    assert made.to_pylist() == source.tolist()
    source[:] = 7
    assert 7 not in made.to_pylist()


@pytest.mark.needs("pyarrow")
def test_arrow_and_memory_that_is_writable():
    source = np.arange(3.0)
    shared = pyarrow.array(dlbridge.asdlpack(source, readonly="share"))
    assert shared.buffers()[1].address == source.ctypes.data
    with pytest.raises(dlbridge.ConversionError, match="must not change"):
        pyarrow.array(dlbridge.asdlpack(source, readonly="error"))


@pytest.mark.needs("pyarrow")
def test_arrow_keeps_the_memory():
    source = frozen_copy(np.arange(1000.0))
    reference = weakref.ref(source)
    made = pyarrow.array(dlbridge.asdlpack(source))
    part = made[10:]
    unused = dlbridge.asdlpack(source).__arrow_c_array__()
    del source, made
    gc.collect()
    assert part[0].as_py() == 10
    del part
    gc.collect()
    assert reference() is not None
    del unused
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("array", [np.zeros((2, 2)), np.zeros(2, bool), np.zeros(2, "c8"), np.array(1.0)], ids=str)
def test_what_has_no_form_in_arrow(array):
    assert not hasattr(dlbridge.asdlpack(array), "__arrow_c_array__")


def test_host_memory_has_no_cuda_array_interface(tensor):
    assert not hasattr(tensor, "__cuda_array_interface__")


# ---- __dlpack__ ------------------------------------------------------------------------------------------------------

def test_dlpack_device(tensor):
    assert tensor.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(("max_version", "name"), [
    (None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"), ((1, 3), "dltensor_versioned"),
    ((2, 5), "dltensor_versioned")])
def test_max_version(tensor, max_version, name):
    assert capsule_name(tensor.__dlpack__(max_version=max_version)) == name


@pytest.mark.parametrize("stream", [None, -1])
def test_streams_of_the_cpu(tensor, stream):
    assert capsule_name(tensor.__dlpack__(stream=stream)) == "dltensor"


@pytest.mark.parametrize("stream", [0, 1, 2, 12345, -2])
def test_other_streams_are_refused(tensor, stream):
    with pytest.raises(dlbridge.DeviceError, match=r"dlpack: stream .*\(.+\)$"):
        tensor.__dlpack__(stream=stream)


@pytest.mark.parametrize("dl_device", [None, (1, 0)])
def test_dl_device(source, tensor, dl_device):
    assert capsule_struct(tensor.__dlpack__(dl_device=dl_device)).dl_tensor.data == source.ctypes.data


@pytest.mark.parametrize("dl_device", [(2, 0), (99, 0), (10, 1), (1,), object()])
def test_another_dl_device_is_refused(tensor, dl_device):
    with pytest.raises(BufferError, match=r"^dlpack: dl_device "):
        tensor.__dlpack__(dl_device=dl_device)


@pytest.mark.parametrize("versioned", [False, True], ids=["legacy", "versioned"])
@pytest.mark.parametrize("value", [None, False, True])
def test_copy(source, tensor, value, versioned):
    struct = capsule_struct(tensor.__dlpack__(copy=value, max_version=(1, 0) if versioned else None))
    assert (struct.dl_tensor.data != source.ctypes.data) is (value is True)
    if versioned:
        assert struct.flags == (IS_COPIED if value else 0)


def test_keywords_only(tensor):
    with pytest.raises(TypeError):
        tensor.__dlpack__(None)
    with pytest.raises(TypeError):
        tensor.__dlpack__(device=None)


def test_read_only_is_flagged(source):
    tensor = dlbridge.asdlpack(make_read_only(source, None))
    struct = capsule_struct(tensor.__dlpack__(max_version=(1, 0)))
    assert (struct.flags, struct.dl_tensor.data) == (READ_ONLY, source.ctypes.data)
    assert not np.from_dlpack(tensor).flags.writeable


# ---- the exchange API ------------------------------------------------------------------------------------------------

def test_the_exchange_api_is_found_on_the_type(tensor):
    assert capsule_name(type(tensor).__dlpack_c_exchange_api__) == "dlpack_exchange_api"


# ---- many times, many threads, many processes ------------------------------------------------------------------------

@pytest.mark.needs("torch")
def test_usable_any_number_of_times(source, tensor):
    results = [torch.from_dlpack(tensor) for _ in range(100)] + [np.from_dlpack(tensor) for _ in range(100)]
    assert {result.data_ptr() if isinstance(result, torch.Tensor) else result.ctypes.data
            for result in results} == {source.ctypes.data}


CONSUMERS = (
    np.from_dlpack,
    lambda tensor: np.asarray(memoryview(tensor)),
    lambda tensor: torch.from_dlpack(tensor).numpy(),
    lambda tensor: dlbridge.convert(tensor, "numpy"),
    lambda tensor: dlbridge.convert(tensor, "numpy", copy=True),
)


def consume(tensor, expected, barrier, wrong):
    barrier.wait()
    for _ in range(200):
        wrong += [consumer for consumer in CONSUMERS if consumer(tensor).tobytes() != expected]


@pytest.mark.needs("torch")
def test_usable_by_many_threads():
    source = numbered((4, 6))
    reference, wrong = weakref.ref(source.base), []
    arguments = (dlbridge.asdlpack(source), source.tobytes(), threading.Barrier(8), wrong)
    threads = [threading.Thread(target=consume, args=arguments) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    del source, arguments, threads, thread
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("make", [
    lambda: numbered((4, 6)), lambda: numbered((4, 6))[::-1, ::2], lambda: numbered((4, 6)).T, lambda: numbered(()),
    lambda: np.zeros((0, 3)), lambda: np.arange(6, dtype=">i4"), lambda: b"abc",
    marked(lambda: numbered((2, 3), ml_dtypes.bfloat16), "ml_dtypes"),
    marked(lambda: np.arange(5).astype(ml_dtypes.int4), "ml_dtypes"),
    marked(lambda: torch.arange(4).to(torch.float8_e5m2), "torch"),
    marked(lambda: dlbridge.to_dlpack(np.arange(5).astype(ml_dtypes.int4)), "ml_dtypes")])
def test_pickle_by_value(make, protocol):
    source = make()
    tensor = dlbridge.asdlpack(source)
    text = pickle.dumps(tensor, protocol)
    made = pickle.loads(text)
    assert type(made) is dlbridge.Tensor
    for field in ("shape", "dtype", "device", "readonly", "nbytes", "itemsize"):
        assert getattr(made, field) == getattr(tensor, field)
    assert made.data_ptr != tensor.data_ptr or not tensor.size
    assert dlbridge.convert(made, "numpy").tobytes() == dlbridge.convert(tensor, "numpy").tobytes()
    if not tensor.size:
        return
    address = tensor.data_ptr
    assert address.to_bytes(8, "little") not in text
    assert str(address).encode() not in text


def test_deepcopy_is_by_value(source, tensor):
    made = copy.deepcopy(tensor)
    assert made.data_ptr != tensor.data_ptr
    strides = tuple(stride * made.itemsize for stride in made.strides)
    assert read_bits(made.data_ptr, made.shape, strides, made.itemsize) == source.tobytes()


def test_it_takes_a_tensor_as_it_is(tensor):
    assert dlbridge.asdlpack(tensor) is tensor
    assert dlbridge.from_dlpack(tensor) is tensor
    assert dlbridge.from_dlpack(tensor, copy=True) is not tensor


def test_from_dlpack_is_the_standards(source):
    with pytest.raises(TypeError):
        dlbridge.from_dlpack(x=source)
    assert dlbridge.from_dlpack(source, device="cpu", copy=False).data_ptr == source.ctypes.data
    assert dlbridge.from_dlpack(CapsuleProducer(source.__dlpack__())).data_ptr == source.ctypes.data


def test_policy_of_a_tensor_that_is_wrapped_again(source):
    source.flags.writeable = False
    first = dlbridge.asdlpack(source)
    assert dlbridge.asdlpack(first) is first
    second = dlbridge.asdlpack(first, readonly="error")
    assert second.data_ptr == first.data_ptr
    with pytest.raises(dlbridge.ConversionError, match="legacy"):
        second.__dlpack__()
    assert capsule_name(first.__dlpack__()) == "dltensor"


def test_owner_is_the_source():
    for source in (b"abc", bytearray(3), np.zeros(3)):
        assert dlbridge.asdlpack(source).owner is source


@pytest.mark.parametrize("copy", [1, "no"])
def test_copy_is_one_of_three(tensor, copy):
    """A ValueError, as NumPy's."""
    with pytest.raises(ValueError, match=r"^dlpack: copy .*\(.+\)$"):
        tensor.__dlpack__(copy=copy)


@pytest.mark.parametrize("stream", [np.zeros(2), "x", 1.5, True, object()])
@pytest.mark.parametrize("device_type", [1, 8], ids=["host", "a device without streams"])
def test_stream_that_is_none(source, device_type, stream):
    capsule = source.__dlpack__()
    capsule_struct(capsule).dl_tensor.device.device_type = device_type
    tensor = dlbridge.asdlpack(capsule)
    for max_version in (None, (1, 0)):
        with pytest.raises(TypeError, match=r"^dlpack: stream .*: has no handle, and is none"):
            tensor.__dlpack__(stream=stream, max_version=max_version)


def test_the_hosts_memory_has_no_stream_object(tensor):
    class Stream:
        def __cuda_stream__(self):
            return 0, 7

    with pytest.raises(dlbridge.DeviceError, match="has no meaning on the CPU"):
        tensor.__dlpack__(stream=Stream())


def test_the_versioned_capsules_of_a_tensor_share_a_block(tensor):
    capsules = [tensor.__dlpack__(max_version=(1, 0), copy=copy) for copy in (None, False, True)]
    first, second, copied = (ctypes.addressof(capsule_struct(capsule)) for capsule in capsules)
    assert first == second != copied


def test_a_tensor_of_a_copy_is_lent_as_it_is(source):
    """The flag would say that a consumer is alone with the memory."""
    copied = dlbridge.asdlpack(source, copy=True)
    assert capsule_struct(copied.__dlpack__(max_version=(1, 0))).flags == 0
    assert capsule_struct(dlbridge.to_dlpack(copied, max_version=(1, 0))).flags == 0


# Written by dlbridge 0.1.0, before the core had a folder of its own.
STORED = {
    "two axes": (
        b"\x80\x04\x95M\x00\x00\x00\x00\x00\x00\x00\x8c\x0fdlbridge.tensor\x94\x8c\x0b_from_bytes\x94\x93\x94("
        b"C\x0c\x00\x00\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\x94K\x02K\x03\x86\x94K\x03K\x01\x86\x94\x8c\x05int16\x94"
        b"\x89\x89t\x94R\x94.", [[0, 1, 2], [3, 4, 5]], False),
    "read-only": (
        b"\x80\x02cdlbridge.tensor\n_from_bytes\nq\x00(c_codecs\nencode\nq\x01X\x03\x00\x00\x00abcq\x02X\x06\x00\x00"
        b"\x00latin1q\x03\x86q\x04Rq\x05K\x03\x85q\x06K\x01\x85q\x07X\x05\x00\x00\x00uint8q\x08\x89\x88tq\tRq\n.",
        [97, 98, 99], True),
}


@pytest.mark.parametrize(("text", "values", "readonly"), STORED.values(), ids=STORED)
def test_a_stored_pickle_still_loads(text, values, readonly):
    tensor = pickle.loads(text)
    assert np.asarray(tensor).tolist() == values
    assert tensor.readonly is readonly


@pytest.mark.parametrize("change", [
    lambda elements, shape, strides, *rest: (elements[:1], shape, strides, *rest),
    lambda elements, shape, strides, *rest: (elements, (1000, 1000), strides, *rest),
    lambda elements, shape, strides, *rest: (elements, shape, strides[:1], *rest),
    lambda elements, shape, strides, *rest: (elements, shape, (-6, 1), *rest),
    lambda elements, shape, strides, dtype, *rest: (elements, shape, strides, "float128", *rest),
], ids=["too few elements", "too large a shape", "too few strides", "strides before the start", "no such type"])
def test_a_damaged_pickle_is_refused(tensor, change):
    rebuild, arguments = tensor.__reduce__()
    with pytest.raises(dlbridge.ConversionError, match="pickle"):
        rebuild(*change(*arguments))
