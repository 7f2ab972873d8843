"""What users of array libraries complain about: how it goes wrong without dlbridge, and that it goes right with it.

Each test shows both halves, so a library that mends its half makes a test fail: then the row of the quirk goes too.
"""

import array
import contextlib
import hashlib
import mmap
import subprocess
import sys
import tempfile
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from support.child import run_in_child
from support.optional import params
from support.producers import LegacyProducer

import dlbridge
from dlbridge.testing.producers import Producer

JAX_VERSION = getattr(jax, "__version_info__", ())
JAX_READS_LEGACY_ONLY = JAX_VERSION < (0, 12)


def frozen(*shape, dtype=np.float32):
    made = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    made.flags.writeable = False
    return made


def aligned(count, dtype):
    """At a multiple of 64 bytes, which JAX needs to share."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    made = raw[start:start + count * np.dtype(dtype).itemsize].view(dtype)
    made[:] = np.arange(count)
    return made


# ---- read-only memory ------------------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
def test_torch_writes_into_read_only_numpy():
    source = frozen(4)
    torch.from_dlpack(source).fill_(9)
    assert source.tolist() == [9, 9, 9, 9], "torch ignores the flag"

    source = frozen(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dlbridge.convert(source, "torch").fill_(9)
        shared = dlbridge.convert(source, "torch", readonly="share")
    assert source.tolist() == [0, 1, 2, 3]
    assert shared.data_ptr() == source.ctypes.data
    with pytest.raises(dlbridge.ConversionError, match="read-only"):
        dlbridge.convert(source, "torch", readonly="error")


@pytest.mark.needs("torch")
def test_torch_writes_into_bytes():
    source = bytes(bytearray(b"Hello!"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.frombuffer(source, dtype=torch.uint8)[0] = ord("J")
    assert source[0] == ord("J")

    source = bytes(bytearray(b"Hello!"))
    dlbridge.convert(source, "torch")[0] = ord("J")
    assert source == b"Hello!"


@pytest.mark.needs("torch")
def test_torch_dies_writing_into_a_read_only_file(tmp_path):
    path = tmp_path / "array"
    np.arange(4096, dtype=np.float32).tofile(path)
    mapped = np.memmap(path, dtype=np.float32, mode="r")
    killed = run_in_child(lambda: torch.from_dlpack(np.asarray(mapped)).fill_(9).sum().item()).signal
    assert killed in ("SIGSEGV", "SIGBUS")
    assert run_in_child(lambda: dlbridge.convert(mapped, "torch").fill_(9).sum().item()).result() == 9 * 4096


@pytest.mark.needs("torch", "jax")
def test_torch_writes_into_a_jax_array():
    source = jnp.arange(4, dtype="float32") + 0
    torch.from_dlpack(source).fill_(9)
    assert source.tolist() == [9, 9, 9, 9], "JAX arrays are said to be immutable"

    source = jnp.arange(4, dtype="float32") + 0
    dlbridge.convert(source, "torch").fill_(9)
    assert source.tolist() == [0, 1, 2, 3]


@pytest.mark.needs("jax")
def test_jax_refuses_read_only_numpy():
    source = aligned(16, np.float32)
    source.flags.writeable = False
    with pytest.raises(BufferError) if JAX_READS_LEGACY_ONLY else contextlib.nullcontext():
        jnp.from_dlpack(source)
    made = dlbridge.convert(source, "jax", readonly="share")
    assert made.tolist() == list(range(16))
    assert made.unsafe_buffer_pointer() == source.ctypes.data


@pytest.mark.needs("torch", "pyarrow")
def test_pyarrow_arrays_are_immutable():
    import pyarrow
    source = pyarrow.array([1, 2, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_dlpack(source)[0] = 9
    assert source.to_pylist() == [9, 2, 3]

    source = pyarrow.py_buffer(bytes(bytearray(b"Hello!")))
    dlbridge.convert(source, "torch")[0] = ord("J")
    assert source.to_pybytes() == b"Hello!"


# ---- bfloat16 and the like -------------------------------------------------------------------------------------------

NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("dtype", NARROW)
def test_numpy_can_not_take_narrow_floats_of_torch(dtype):
    source = torch.tensor([[1.5, -2.0], [0.25, 4.0]]).to(getattr(torch, dtype))
    for convert in (np.from_dlpack, lambda tensor: tensor.numpy()):
        with pytest.raises((TypeError, BufferError, RuntimeError)):
            convert(source)
    made = dlbridge.convert(source, "numpy", copy=False)
    assert made.dtype == getattr(ml_dtypes, dtype)
    assert made.ctypes.data == source.data_ptr()
    assert made.astype(np.float32).tolist() == [[1.5, -2.0], [0.25, 4.0]]


@pytest.mark.needs("torch", "ml_dtypes")
@pytest.mark.parametrize("dtype", NARROW)
def test_torch_can_not_take_narrow_floats_of_numpy(dtype):
    source = np.array([1.5, -2.0, 0.25]).astype(getattr(ml_dtypes, dtype))
    for convert in (torch.from_dlpack, torch.from_numpy):
        with pytest.raises((TypeError, BufferError, RuntimeError)):
            convert(source)
    made = dlbridge.convert(source, "torch", copy=False)
    assert made.dtype is getattr(torch, dtype)
    assert made.data_ptr() == source.ctypes.data
    assert made.tolist() == [1.5, -2.0, 0.25]


@pytest.mark.needs("torch", "jax", "ml_dtypes")
def test_narrow_floats_keep_every_bit_around_the_libraries():
    bits = np.arange(2**16, dtype=np.uint16)
    source = bits.view(ml_dtypes.bfloat16)
    made = dlbridge.convert(dlbridge.convert(dlbridge.convert(source, "torch"), "jax"), "numpy")
    assert (made.view(np.uint16) == bits).all(), "the payloads of NaN too"


# ---- strides ---------------------------------------------------------------------------------------------------------

IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
STRIDES = {
    "colours backwards": IMAGE[..., ::-1],
    "upside down": IMAGE[::-1],
    "transposed and backwards": IMAGE.T[::-1, :, ::-1],
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("source", STRIDES.values(), ids=STRIDES)
def test_torch_dies_on_negative_strides(source):
    ended = run_in_child(lambda: torch.from_dlpack(source).sum().item())
    assert ended.signal == "SIGABRT" or isinstance(ended.error, RuntimeError)      # in torch 2.15
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(source)

    made = dlbridge.convert(source, "torch")
    assert made.tolist() == source.tolist()
    with pytest.raises(dlbridge.CopyRequiredError, match="strides"):
        dlbridge.convert(source, "torch", copy=False)


@pytest.mark.needs("torch")
def test_flipping_an_axis_of_one_is_no_reason_to_copy():
    source = np.arange(4.0).reshape(1, 4)[::-1]
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(source)
    assert dlbridge.convert(source, "torch", copy=False).tolist() == [[0, 1, 2, 3]]


@pytest.mark.needs("jax")
def test_jax_refuses_holes_even_when_told_to_copy():
    source = np.arange(24.0, dtype=np.float32).reshape(4, 6)[:, ::2]
    with pytest.raises(Exception, match=r"(?i)stride|layout|contig|unimplemented"):
        jnp.from_dlpack(source, copy=True)
    assert dlbridge.convert(source, "jax").tolist() == source.tolist()


@pytest.mark.needs("torch")
def test_field_of_a_packed_record():
    """Its stride is no multiple of its size, so DLPack can not say it."""
    records = np.zeros(3, np.dtype([("flag", "u1"), ("value", "<f4")]))
    records["value"] = [1, 2, 3]
    with pytest.raises((ValueError, BufferError)):
        torch.from_dlpack(records["value"])
    assert dlbridge.convert(records["value"], "torch").tolist() == [1, 2, 3]


# ---- lifetime --------------------------------------------------------------------------------------------------------

def grow_bytearray():
    memory = bytearray(64)
    return memory, lambda: memory.extend(b"more")


def grow_array():
    memory = array.array("B", bytes(64))
    return memory, lambda: memory.append(1)


def release_view():
    memory = memoryview(bytearray(64))
    return memory, memory.release


def close_mmap():
    memory = mmap.mmap(-1, 4096)
    return memory, memory.close


@pytest.mark.needs("torch")
@pytest.mark.parametrize("make", [grow_bytearray, grow_array, release_view, close_mmap], ids=lambda make: make.__name__)
def test_torch_does_not_pin_a_buffer(make):
    memory, change = make()
    tensor = torch.frombuffer(memory, dtype=torch.uint8)
    change()                    # from here on the tensor reads what is no longer there
    del tensor

    memory, change = make()
    tensor = dlbridge.convert(memory, "torch")
    with pytest.raises(BufferError):
        change()
    assert tensor.sum().item() == 0
    del tensor
    change()


# ---- copy= and device= -----------------------------------------------------------------------------------------------

@pytest.mark.needs("jax")
def test_jax_does_not_keep_its_promise_to_copy():
    source = aligned(16, np.float32)
    before = source.tolist()
    promised = jnp.from_dlpack(source, copy=True)
    source[:] = 9
    shares = JAX_VERSION > (0, 8, 0)
    assert promised.tolist() == ([9] * 16 if shares else before)

    source = aligned(16, np.float32)
    made = dlbridge.convert(source, "jax", copy=True)
    source[:] = 9
    assert made.tolist() == list(range(16))


@pytest.mark.parametrize("target", params(["numpy", "torch", "jax", "memoryview", "dlbridge"]))
def test_copy_means_what_it_says(target):
    source = aligned(16, np.float32)
    for copy, shared in ((True, False), (False, True)):
        made = dlbridge.asdlpack(dlbridge.convert(source, target, copy=copy, readonly="share"))
        assert (made.data_ptr == source.ctypes.data) is shared


@pytest.mark.needs("torch", "jax")
def test_same_library_and_device_as_another_array():
    for like in (np.zeros(1), torch.zeros(1), jnp.zeros(1)):
        made = dlbridge.convert(bytearray(8), like)
        assert type(made) is type(like)


# ---- one family of errors --------------------------------------------------------------------------------------------

@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "dlpack"])
def test_what_is_no_array_is_one_error_everywhere(target):
    theirs = set()
    for convert in (np.from_dlpack, torch.from_dlpack, jnp.from_dlpack):
        try:
            convert([1, 2])
        except Exception as error:
            theirs.add(type(error))
    assert len(theirs) > 1
    with pytest.raises(dlbridge.UnsupportedError, match="list") as caught:
        dlbridge.convert([1, 2], target)
    assert isinstance(caught.value, TypeError)
    assert "numpy.asarray" in str(caught.value)


@pytest.mark.needs("torch")
def test_copy_required_is_both_of_the_standards_errors():
    with pytest.raises(dlbridge.CopyRequiredError) as caught:
        dlbridge.convert(np.arange(4)[::-1], "torch", copy=False)
    assert isinstance(caught.value, BufferError)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, dlbridge.DLBridgeError)


# ---- gradients and lazy bits -----------------------------------------------------------------------------------------

@pytest.mark.needs("torch", "jax")
def test_negative_bit_has_the_wrong_sign():
    source = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    assert source.tolist() == [-2, -4]
    assert source.is_neg()
    assert np.from_dlpack(source).tolist() == [2, 4], "torch checks the bit nowhere"
    for target in ("numpy", "jax", "memoryview", "dlbridge"):
        assert dlbridge.convert(dlbridge.convert(source, target), "numpy").tolist() == [-2, -4]
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(source, "numpy", copy=False)


@pytest.mark.needs("torch")
def test_conjugate_bit_needs_no_detour():
    source = torch.tensor([1 + 2j, 3 - 4j]).conj()
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(source)
    assert dlbridge.convert(source, "numpy").tolist() == [1 - 2j, 3 + 4j]
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(source, "numpy", copy=False)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("source", [
    torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True) * 1,
], ids=["leaf", "Parameter", "result"])
def test_gradient_is_dropped_on_request_alone(source):
    with pytest.raises(dlbridge.ConversionError, match="detach=True"):
        dlbridge.convert(source, "numpy")
    made = dlbridge.convert(source, "numpy", detach=True)
    assert made.tolist() == [1, 1, 1]
    assert made.ctypes.data == source.data_ptr()


# ---- which version, which keywords -----------------------------------------------------------------------------------

@pytest.mark.needs("torch")
def test_error_of_a_producer_is_not_taken_for_an_old_signature():
    def buggy():
        return Producer(error=TypeError("a bug of mine"))

    theirs = buggy()
    with pytest.raises(TypeError):
        torch.from_dlpack(theirs)
    assert len(theirs.calls) > 1, "torch tries again and again"

    ours = buggy()
    with pytest.raises(TypeError, match="a bug of mine"):
        dlbridge.convert(ours, "torch")
    assert len(ours.calls) == 1


@pytest.mark.needs("jax")
def test_jax_takes_what_only_speaks_versioned_dlpack():
    refused = pytest.raises(Exception, match=r"(?i)dltensor|capsule|version")
    with refused if JAX_READS_LEGACY_ONLY else contextlib.nullcontext():
        jnp.from_dlpack(Producer(np.arange(6, dtype=np.float32)))
    made = dlbridge.convert(Producer(np.arange(6, dtype=np.float32)), "jax")
    assert made.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.needs("torch")
def test_numpy_takes_what_only_speaks_legacy_dlpack_and_may_write():
    tensor = torch.zeros(2)
    assert not np.from_dlpack(LegacyProducer(tensor)).flags.writeable
    dlbridge.convert(LegacyProducer(tensor), "numpy")[:] = 1
    assert tensor.tolist() == [1, 1]


def test_capsule_is_an_array_too():
    producer = Producer()
    capsule = producer.capsule()        # which dies with no error on its way: its destructor is Python's
    with pytest.raises(AttributeError):
        np.from_dlpack(capsule)
    assert dlbridge.convert(producer.capsule(), "numpy").tolist() == [[0, 1, 2], [3, 4, 5]]


# ---- values that change without a word -------------------------------------------------------------------------------

@pytest.mark.needs("jax")
@pytest.mark.parametrize(("value", "dtype"), [(2**40 + 1, np.int64), (1e300, np.float64)], ids=["int64", "float64"])
def test_jax_narrows_wide_numbers(value, dtype):
    source = np.full(16, value, dtype)
    if jax.config.jax_enable_x64:
        pytest.skip("jax_enable_x64 is on, so nothing is narrowed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        narrowed = jnp.from_dlpack(source)
    assert narrowed[0].item() != value

    with pytest.raises(dlbridge.ConversionError, match="jax_enable_x64"):
        dlbridge.convert(source, "jax")


@pytest.mark.needs("jax")
def test_jax_takes_wide_numbers_once_it_is_told_to():
    program = (
        "import jax, numpy, dlbridge; jax.config.update('jax_enable_x64', True);"
        "print(dlbridge.convert(numpy.array([2**40 + 1]), 'jax')[0])")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == (f"{2**40 + 1}\n", "")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("target", params(["numpy", "torch", "jax", "memoryview", "dlpack", "dlbridge"]))
def test_mask_is_not_dropped(target):
    source = np.ma.masked_greater(np.array([1, 2, 99], np.int32), 50)
    assert torch.from_dlpack(source).tolist() == [1, 2, 99], "torch drops the mask"

    with pytest.raises(dlbridge.UnsupportedError, match="filled"):
        dlbridge.convert(source, target)
    assert dlbridge.asdlpack(source.filled(0)).shape == (3,)


@pytest.mark.parametrize("mask", [False, [False, False, False], np.ma.nomask], ids=["one", "each", "none"])
@pytest.mark.parametrize("target", params(["numpy", "torch", "jax", "memoryview", "dlpack", "dlbridge"]))
def test_a_mask_that_hides_nothing_is_no_reason(target, mask):
    """rasterio and netCDF4 give masks for files without holes."""
    source = np.ma.array(np.array([1, 2, 3], np.int32), mask=mask)
    assert dlbridge.convert(dlbridge.convert(source, target), "numpy").tolist() == [1, 2, 3]
    assert dlbridge.convert(source, "numpy", copy=False).ctypes.data == source.ctypes.data
    source[1] = np.ma.masked
    with pytest.raises(dlbridge.UnsupportedError, match="hides 1 of 3 values"):
        dlbridge.convert(source, target)
    assert dlbridge.convert(source[::2], "numpy").tolist() == [1, 3]


@pytest.mark.needs("torch")
def test_byte_order_is_swapped_or_refused():
    source = np.arange(4, dtype=">i4")
    with pytest.raises((TypeError, ValueError, BufferError)):
        torch.from_numpy(source)
    assert dlbridge.convert(source, "torch").tolist() == [0, 1, 2, 3]
    with pytest.raises(dlbridge.CopyRequiredError, match="byte order"):
        dlbridge.convert(source, "torch", copy=False)


@pytest.mark.needs("torch")
def test_what_torch_makes_of_a_tensor():
    """torch.asarray asks for a buffer as readinto and hashlib do, and reads it as its default type: docs/errors.md."""
    source = np.arange(4.0)
    tensor = dlbridge.asdlpack(source)
    for make in torch.from_dlpack, torch.as_tensor, lambda x: dlbridge.convert(x, "torch"):
        assert make(tensor).tolist() == source.tolist()
    assert hashlib.sha256(tensor).digest() == hashlib.sha256(source).digest()
    assert bytes(tensor) == source.tobytes()
    with tempfile.TemporaryFile() as file:
        assert file.write(tensor) == source.nbytes
        file.seek(0)
        source[:] = 0
        assert file.readinto(tensor) == source.nbytes
    assert source.tolist() == [0, 1, 2, 3]
