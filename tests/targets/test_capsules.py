"""Capsules and structs that dlbridge gives out, read as any C consumer would read them."""

import ctypes
import gc
import importlib
import weakref

import numpy as np
import pytest
from support.importers import CapsuleProducer
from support.optional import marked, params

import dlbridge
from dlbridge.testing import abi
from dlbridge.testing.producers import (
    Producer,
    capsule_name,
    capsule_pointer,
    rename_capsule,
)

pytestmark = pytest.mark.quick

NAMES = {(1, 0): abi.VERSIONED_NAME, None: abi.LEGACY_NAME}
VERSIONS = pytest.mark.parametrize("max_version", NAMES, ids=["versioned", "legacy"])


def struct_of(capsule):
    name = capsule_name(capsule)
    kind = abi.DLManagedTensorVersioned if name == abi.VERSIONED_NAME else abi.DLManagedTensor
    return kind.from_address(capsule_pointer(capsule, name))


def extents(pointer, tensor):
    return tuple(pointer[axis] for axis in range(tensor.ndim))


ARRAYS = {
    "two axes": np.arange(6, dtype=np.float32).reshape(2, 3),
    "rank 0": np.array(7, np.int64),
    "no elements": np.zeros((0, 3)),
    "transposed": np.arange(6, dtype=np.int16).reshape(2, 3).T,
    "with holes": np.arange(12, dtype=np.uint8)[::3],
    "backwards": np.arange(4.0)[::-1],
    "64 axes": np.zeros((1,) * 64, np.complex64),
}


@VERSIONS
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_struct_says_what_the_array_is(array, max_version):
    capsule = dlbridge.to_dlpack(array, max_version=max_version)
    assert capsule_name(capsule) == NAMES[max_version]
    tensor = struct_of(capsule).dl_tensor
    assert tensor.ndim == array.ndim
    assert extents(tensor.shape, tensor) == array.shape
    if array.size:
        assert tensor.data + tensor.byte_offset == array.ctypes.data
        assert all(
            stride * array.itemsize == expected or extent == 1
            for stride, expected, extent
            in zip(extents(tensor.strides, tensor), array.strides, array.shape, strict=True))
    assert bool(tensor.strides) or array.ndim == 0, "DLPack 1.2 wants strides always"
    assert (tensor.device.device_type, tensor.device.device_id) == (abi.CPU, 0)
    assert (tensor.dtype.bits, tensor.dtype.lanes) == (array.itemsize * 8, 1)


def test_versioned_struct_says_its_version_and_flags():
    for source, flags in ((bytearray(4), 0), (b"four", abi.READ_ONLY)):
        capsule = dlbridge.to_dlpack(source, max_version=(1, 0))
        struct = struct_of(capsule)
        assert (struct.version.major, struct.version.minor) == (1, 3)
        assert struct.flags == flags


def test_copy_is_flagged_as_one():
    capsule = dlbridge.asdlpack(np.zeros(3)).__dlpack__(max_version=(1, 0), copy=True)
    assert capsule_name(capsule) == abi.VERSIONED_NAME
    assert struct_of(capsule).flags == abi.IS_COPIED


@pytest.mark.needs("ml_dtypes")
def test_padded_elements_are_flagged():
    import ml_dtypes
    capsule = dlbridge.to_dlpack(np.zeros(4, ml_dtypes.float4_e2m1fn), max_version=(1, 0))
    struct = struct_of(capsule)
    assert struct.flags == abi.SUBBYTE_PADDED
    assert (struct.dl_tensor.dtype.code, struct.dl_tensor.dtype.bits) == (17, 4)


@VERSIONS
def test_read_only_memory_is_flagged_or_copied(max_version):
    array = np.arange(3.0)
    array.flags.writeable = False
    capsules = [dlbridge.to_dlpack(array, max_version=max_version, readonly=policy) for policy in ("copy", "share")]
    addresses = [struct_of(capsule).dl_tensor.data for capsule in capsules]
    assert (addresses[0] == array.ctypes.data) is (max_version is not None)
    assert addresses[1] == array.ctypes.data
    if max_version is None:
        with pytest.raises(dlbridge.ConversionError):
            dlbridge.to_dlpack(array, readonly="error")


@VERSIONS
def test_capsule_that_nobody_consumed_lets_go(max_version):
    producer = Producer()
    capsule = dlbridge.to_dlpack(producer, max_version=max_version)
    assert producer.deleted == 0
    del capsule
    gc.collect()
    assert producer.deleted == 1


@VERSIONS
def test_consumed_capsule_does_not_let_go(max_version):
    """Renamed, it is the consumer's, who calls the deleter."""
    producer = Producer()
    capsule = dlbridge.to_dlpack(producer, max_version=max_version)
    struct = struct_of(capsule)
    used = ctypes.c_char_p(b"used_" + NAMES[max_version])
    rename_capsule(capsule, used)
    del capsule
    gc.collect()
    assert producer.deleted == 0
    struct.deleter(ctypes.addressof(struct))
    assert producer.deleted == 1


# JAX reads no versioned capsules.
@pytest.mark.parametrize(("consumer", "max_version"), params([
    ("numpy", None), marked(("numpy", (1, 0)), "numpy 2.1"), ("torch", None),
    ("torch", (1, 0)), marked(("jax.dlpack", None), "jax"),
]))
def test_libraries_consume_it(consumer, max_version):
    from_dlpack = importlib.import_module(consumer).from_dlpack
    producer = Producer()
    capsule = dlbridge.to_dlpack(producer, max_version=max_version)
    made = from_dlpack(CapsuleProducer(capsule))
    assert made.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert capsule_name(capsule) == b"used_" + NAMES[max_version]
    del made, capsule
    gc.collect()
    assert producer.deleted == 1


def test_consumers_may_be_many():
    producer = Producer()
    tensor = dlbridge.asdlpack(producer)
    capsules = [tensor.__dlpack__(max_version=version) for version in NAMES for _ in range(10)]
    structs = [ctypes.addressof(struct_of(capsule)) for capsule in capsules]
    # A versioned consumer has the Tensor's own struct and one reference to it; a legacy one may get other memory.
    versioned = [struct for struct, capsule in zip(structs, capsules, strict=True) if "versioned" in repr(capsule)]
    assert len(versioned) == 10
    assert len(set(versioned)) == 1
    assert len(set(structs)) == 11
    del tensor
    arrays = [dlbridge.convert(capsule, "numpy") for capsule in capsules]
    del capsules
    while arrays:
        assert producer.deleted == 0
        assert arrays.pop().sum() == 15
    gc.collect()
    assert producer.deleted == 1


@VERSIONS
def test_a_capsule_that_finds_no_memory_takes_nothing_from_its_tensor(max_version):
    testcapi = pytest.importorskip("_testcapi", reason="this CPython was built without what makes allocations fail")
    producer = Producer()
    tensor = dlbridge.asdlpack(producer)
    export = tensor.__dlpack__
    failed = 0
    for number in range(20):
        try:
            testcapi.set_nomemory(number, number + 1)
            export(max_version=max_version)
        except MemoryError:
            failed += 1
        finally:
            testcapi.remove_mem_hooks()
    assert failed
    assert producer.deleted == 0
    assert np.from_dlpack(tensor).sum() == 15
    del tensor, export
    gc.collect()
    assert producer.deleted == 1


# ---- the fake producers themselves -----------------------------------------------------------------------------------

@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
def test_fake_producer_counts_each_call_of_its_deleter(versioned):
    producer = Producer(versioned=versioned)
    struct = producer.struct()
    for times in (1, 2, 3):
        struct.deleter(ctypes.addressof(struct))
        assert producer.deleted == times


@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
def test_fake_producer_outlives_its_last_capsule(versioned):
    producer = Producer(versioned=versioned)
    array, watched = producer.array, weakref.ref(producer)
    capsule = producer.capsule()
    del producer
    gc.collect()
    assert watched() is not None
    struct = struct_of(capsule)
    assert struct.dl_tensor.data == array.ctypes.data
    del capsule, struct
    gc.collect()
    assert watched() is None


def test_fake_producer_refuses_a_field_that_it_does_not_have():
    with pytest.raises(TypeError, match="rank"):
        Producer(rank=3)


# ---- what a consumer may ask of a Tensor -----------------------------------------------------------------------------

KEYWORDS = {
    "stream -1": ({"stream": -1}, None),
    "stream 1 on the CPU": ({"stream": 1}, dlbridge.DeviceError),
    "stream 0": ({"stream": 0}, dlbridge.DeviceError),
    "dl_device of the CPU": ({"dl_device": (1, 0)}, None),
    "dl_device elsewhere": ({"dl_device": (2, 0)}, dlbridge.DeviceError),
    "dl_device unknown": ({"dl_device": (99, 0)}, BufferError),
    "copy False": ({"copy": False}, None),
    "copy True": ({"copy": True}, None),
    "max_version of the future": ({"max_version": (7, 0)}, None),
    "max_version of the past": ({"max_version": (0, 6)}, None),
}


@pytest.mark.parametrize(("keywords", "error"), KEYWORDS.values(), ids=KEYWORDS)
def test_keywords_of_the_standard(keywords, error):
    tensor = dlbridge.asdlpack(np.arange(3.0))
    if error is None:
        assert dlbridge.convert(tensor.__dlpack__(**keywords), "numpy").tolist() == [0, 1, 2]
    else:
        with pytest.raises(error):
            tensor.__dlpack__(**keywords)


def test_keywords_are_keywords_alone():
    with pytest.raises(TypeError):
        dlbridge.asdlpack(np.zeros(3)).__dlpack__(None)
