"""The structs of DLPack 1.3, read from dlbridge's own capsules by way of ctypes."""

import ctypes

import numpy as np
import pytest
from support.exporters import numbered
from support.importers import capsule_name, capsule_struct
from support.optional import marked

import dlbridge
from dlbridge.testing.abi import IS_COPIED, READ_ONLY

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 3), (1, 9), (2, 0)])
def test_every_field_of_a_capsule(max_version):
    source = numbered((4, 6), "int16")[:, ::2]
    capsule = dlbridge.to_dlpack(source, max_version=max_version)
    struct = capsule_struct(capsule)
    versioned = max_version is not None and max_version >= (1, 0)
    assert capsule_name(capsule) == ("dltensor_versioned" if versioned else "dltensor")
    if versioned:
        assert (struct.version.major, struct.version.minor) == dlbridge.DLPACK_VERSION == (1, 3)
        assert struct.flags == 0
    tensor = struct.dl_tensor
    assert tensor.data == source.ctypes.data
    assert (tensor.device.device_type, tensor.device.device_id) == (1, 0)
    assert tensor.ndim == 2
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (0, 16, 1)
    assert tensor.shape[:2] == [4, 3]
    assert tensor.strides[:2] == [6, 2]
    assert tensor.byte_offset == 0
    assert struct.manager_ctx
    assert struct.deleter


@pytest.mark.parametrize("max_version", [None, (1, 0)])
@pytest.mark.parametrize("ndim", [0, 1, 2, 8, 64])
def test_one_block_with_8_bytes_beside_what_the_standard_asks_for(ndim, max_version):
    # With two axes 120 in all, which fit into a chunk of 128 of malloc()'s.
    struct = capsule_struct(dlbridge.to_dlpack(np.zeros((1,) * ndim), max_version=max_version))
    shape, strides = (
        ctypes.cast(extents, ctypes.c_void_p).value for extents in (struct.dl_tensor.shape, struct.dl_tensor.strides))
    assert shape - ctypes.addressof(struct) == ctypes.sizeof(struct) + 8
    assert strides - shape == 8 * ndim


def test_flags():
    readonly = np.zeros(3)
    readonly.flags.writeable = False
    assert capsule_struct(dlbridge.to_dlpack(readonly, max_version=(1, 0))).flags == READ_ONLY
    tensor = dlbridge.asdlpack(np.zeros(3))
    assert capsule_struct(tensor.__dlpack__(max_version=(1, 0))).flags == 0
    assert capsule_struct(tensor.__dlpack__(max_version=(1, 0), copy=True)).flags == IS_COPIED


def test_a_read_only_copy_is_not_flagged_read_only():
    tensor = dlbridge.asdlpack(b"abc")
    assert capsule_struct(tensor.__dlpack__(max_version=(1, 0), copy=True)).flags == IS_COPIED


def test_the_second_export_of_a_copy_is_no_sole_owner():
    tensor = dlbridge.asdlpack(np.zeros(3), copy=True)
    flags = [capsule_struct(tensor.__dlpack__(max_version=(1, 0))).flags for _ in range(2)]
    assert flags == [0, 0]


DTYPES = (
    ("bool", 6, 8), ("int8", 0, 8), ("int16", 0, 16), ("int32", 0, 32), ("int64", 0, 64), ("uint8", 1, 8),
    ("uint16", 1, 16), ("uint32", 1, 32), ("uint64", 1, 64), ("float16", 2, 16), ("float32", 2, 32),
    ("float64", 2, 64), ("complex32", 5, 32), ("complex64", 5, 64), ("complex128", 5, 128), ("bfloat16", 4, 16),
    ("float8_e3m4", 7, 8), ("float8_e4m3", 8, 8), ("float8_e4m3b11fnuz", 9, 8), ("float8_e4m3fn", 10, 8),
    ("float8_e4m3fnuz", 11, 8), ("float8_e5m2", 12, 8), ("float8_e5m2fnuz", 13, 8), ("float8_e8m0fnu", 14, 8),
    ("float6_e2m3fn", 15, 6), ("float6_e3m2fn", 16, 6), ("float4_e2m1fn", 17, 4), ("int4", 0, 4), ("uint4", 1, 4),
)


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize(("name", "code", "bits"), [
    marked(each, *["ml_dtypes 0.6"] * (each[0] == "complex32")) for each in DTYPES])
def test_codes_of_dtypes(name, code, bits):
    import ml_dtypes
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    capsule = dlbridge.to_dlpack(np.zeros(4, dtype), max_version=(1, 3))
    found = capsule_struct(capsule).dl_tensor.dtype
    assert (found.code, found.bits, found.lanes) == (code, bits, 1)


def test_an_unconsumed_capsule_lets_go():
    source = bytearray(b"abc")
    for max_version in (None, (1, 0)):
        capsule = dlbridge.to_dlpack(source, max_version=max_version)
        with pytest.raises(BufferError):
            source.extend(b"d")
        del capsule
        source.extend(b"d")


def test_0d_and_empty():
    scalar = capsule_struct(dlbridge.to_dlpack(np.array(5.0))).dl_tensor
    assert scalar.ndim == 0
    empty = capsule_struct(dlbridge.to_dlpack(np.zeros((3, 0, 2)))).dl_tensor
    assert empty.shape[:3] == [3, 0, 2]
    assert empty.strides     # never NULL with axes, since DLPack 1.2
