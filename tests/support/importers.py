"""The importers: every kind of result, and how to look into it without dlbridge."""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_strict
import numpy as np

import dlbridge
from dlbridge.testing.abi import READ_ONLY, DLManagedTensor, DLManagedTensorVersioned
from support.exporters import buffer_address

STRUCTS = {"dltensor": DLManagedTensor, "dltensor_versioned": DLManagedTensorVersioned}

_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


def capsule_name(capsule):
    return _get_name(capsule).decode()


def capsule_struct(capsule):
    """The managed tensor in a capsule that nobody has taken yet; it keeps the capsule, which lets go of it."""
    name = capsule_name(capsule)
    struct = STRUCTS[name].from_address(_get_pointer(capsule, name.encode()))
    struct.capsule = capsule
    return struct


# The names that the DLPack header gives, written down here once more, so that a slip in dlbridge's table shows.
DTYPE_NAMES = {
    (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (0, 4): "int4",
    (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32", (1, 64): "uint64", (1, 4): "uint4",
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
    (4, 16): "bfloat16",
    (5, 32): "complex32", (5, 64): "complex64", (5, 128): "complex128",
    (6, 8): "bool",
    (7, 8): "float8_e3m4", (8, 8): "float8_e4m3", (9, 8): "float8_e4m3b11fnuz", (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz", (12, 8): "float8_e5m2", (13, 8): "float8_e5m2fnuz", (14, 8): "float8_e8m0fnu",
    (15, 6): "float6_e2m3fn", (16, 6): "float6_e3m2fn", (17, 4): "float4_e2m1fn",
}


# ---- how to look into a result ---------------------------------------------------------------------------------------

class View(NamedTuple):
    """A result as plain facts. Strides are in bytes, None where the library does not tell them."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    writable: bool
    bits: bytes


def read_bits(address, shape, strides, itemsize):
    """The elements in C order, read from memory as it stands."""
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return b""
    offsets = np.zeros(shape, np.int64)
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        offsets += (np.arange(extent) * stride).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return b"".join(ctypes.string_at(address + int(offset), itemsize) for offset in offsets.ravel())


def look_numpy(result):
    assert type(result) is np.ndarray
    address = result.__array_interface__["data"][0]
    dtype = result.dtype
    assert dtype.isnative
    return View(address, result.shape, result.strides, dtype.name, result.flags.writeable,
                read_bits(address, result.shape, result.strides, dtype.itemsize))


def look_torch(result):
    size = result.element_size()
    strides = tuple(stride * size for stride in result.stride())
    shape = tuple(result.shape)
    return View(result.data_ptr(), shape, strides, str(result.dtype).removeprefix("torch."), True,
                read_bits(result.data_ptr(), shape, strides, size))


def look_jax(result):
    return View(result.unsafe_buffer_pointer(), result.shape, None, result.dtype.name, False,
                np.asarray(result).tobytes())


FORMATS = {
    "?": "bool", "b": "int8", "h": "int16", "i": "int32", "l": "int64", "B": "uint8", "H": "uint16", "I": "uint32",
    "L": "uint64", "e": "float16", "f": "float32", "d": "float64", "Ze": "complex32", "Zf": "complex64",
    "Zd": "complex128",
}


def look_memoryview(result):
    assert type(result) is memoryview
    address = buffer_address(result)
    return View(address, result.shape, result.strides, FORMATS[result.format.lstrip("@=<")], not result.readonly,
                read_bits(address, result.shape, result.strides, result.itemsize))


def look_tensor(result):
    """By its own attributes; that they are true is for the tests of the Tensor, and for the bits that are read here."""
    assert type(result) is dlbridge.Tensor
    strides = tuple(stride * result.itemsize for stride in result.strides)
    return View(result.data_ptr, result.shape, strides, result.dtype, not result.readonly,
                read_bits(result.data_ptr, result.shape, strides, result.itemsize))


def look_capsule(capsule):
    struct = capsule_struct(capsule)
    tensor = struct.dl_tensor
    size = tensor.dtype.bits * tensor.dtype.lanes // 8
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] * size for axis in range(tensor.ndim))
    address = (tensor.data or 0) + tensor.byte_offset
    writable = not (isinstance(struct, DLManagedTensorVersioned) and struct.flags & READ_ONLY)
    return View(address, shape, strides, DTYPE_NAMES[tensor.dtype.code, tensor.dtype.bits], writable,
                read_bits(address, shape, strides, size))


def look_strict(result):
    assert type(result) is type(array_api_strict.zeros(0))
    return look_numpy(result._array)


class Importer(NamedTuple):
    name: str
    to: Any
    look: Callable[[Any], View]
    told: bool = True           # whether it can be told that memory is read-only
    alignment: int = 1
    dense: bool = False         # whether it takes only arrays without holes
    via: Callable[..., Any] | None = None       # another function than convert(src, to)
    needs: tuple[str, ...] = ()                 # libraries
    immutable: bool = False     # whether its arrays must not change

    @property
    def library(self):
        return self.name.partition(",")[0]


def to_versioned(src, **keywords):
    """A versioned capsule, by the one way there is to ask for all of convert()'s keywords with it."""
    return dlbridge.asdlpack(src, **keywords).__dlpack__(max_version=(1, 3))


def share_with_jax(src, **keywords):
    """A JAX array, with the promise that the memory is not written to."""
    return dlbridge.convert(src, "jax", **{"readonly": "share"} | keywords)


IMPORTERS = (
    Importer("numpy", "numpy", look_numpy),
    Importer("torch", "torch", look_torch, told=False, needs=("torch",)),
    Importer("jax", "jax", look_jax, alignment=64, dense=True, needs=("jax",), immutable=True),
    Importer("jax, shared", "jax", look_jax, alignment=64, dense=True, via=share_with_jax, needs=("jax",)),
    Importer("memoryview", "memoryview", look_memoryview),
    Importer("dlpack", "dlpack", look_capsule, told=False),
    Importer("dlpack versioned", None, look_capsule, via=to_versioned),
    Importer("dlbridge", "dlbridge", look_tensor),
    Importer("array_api_strict", array_api_strict, look_strict, needs=("array_api_strict",)),
)


def deliver(importer, src, **keywords):
    if importer.via is not None:
        return importer.via(src, **keywords)
    return dlbridge.convert(src, importer.to, **keywords)


class CapsuleProducer:
    """Hands a capsule to a library that asks objects, not capsules."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **keywords):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)
