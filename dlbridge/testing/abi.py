"""The C structures of DLPack 1.3 and of ``__array_struct__``, for ctypes."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_ssize_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ctypes import _CFunctionType, _Pointer

CPU: Final = 1
CUDA: Final = 2
READ_ONLY: Final = 1
IS_COPIED: Final = 2
SUBBYTE_PADDED: Final = 4

LEGACY_NAME: Final = b"dltensor"
USED_LEGACY_NAME: Final = b"used_dltensor"
VERSIONED_NAME: Final = b"dltensor_versioned"
USED_VERSIONED_NAME: Final = b"used_dltensor_versioned"
EXCHANGE_NAME: Final = b"dlpack_exchange_api"

# A deleter takes the address of its own struct. Any thread can call it, with or without the GIL.
Deleter = CFUNCTYPE(None, c_void_p)


class DLPackVersion(Structure):
    """The version of a versioned struct, and of an exchange table."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32)]

    major: int
    minor: int


class DLDevice(Structure):
    """Where memory is."""

    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]

    device_type: int
    device_id: int


class DLDataType(Structure):
    """What an element is."""

    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]

    code: int
    bits: int
    lanes: int


# A null pointer reads as None, so pointers below are Any too.
class DLTensor(Structure):
    """Memory and its layout, without an owner."""

    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]

    data: int | Any
    device: DLDevice
    ndim: int
    dtype: DLDataType
    shape: _Pointer[c_int64] | Any
    strides: _Pointer[c_int64] | Any
    byte_offset: int


class DLManagedTensor(Structure):
    """What a capsule named "dltensor" points to."""

    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", Deleter)]

    dl_tensor: DLTensor
    manager_ctx: int | Any
    deleter: _CFunctionType


class DLManagedTensorVersioned(Structure):
    """What a capsule named "dltensor_versioned" points to."""

    _fields_ = [
        ("version", DLPackVersion),
        ("manager_ctx", c_void_p),
        ("deleter", Deleter),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    ]

    version: DLPackVersion
    manager_ctx: int | Any
    deleter: _CFunctionType
    flags: int
    dl_tensor: DLTensor


SetError = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)


class DLPackExchangeAPI(Structure):
    """The table behind ``type(x).__dlpack_c_exchange_api__``. Its functions are called with the GIL, by PYFUNCTYPE."""

    _fields_ = [
        ("version", DLPackVersion),
        ("prev_api", c_void_p),
        ("managed_tensor_allocator", PYFUNCTYPE(
            c_int, POINTER(DLTensor), POINTER(POINTER(DLManagedTensorVersioned)), c_void_p, SetError)),
        ("managed_tensor_from_py_object_no_sync", PYFUNCTYPE(
            c_int, c_void_p, POINTER(POINTER(DLManagedTensorVersioned)))),
        ("managed_tensor_to_py_object_no_sync", PYFUNCTYPE(
            c_int, POINTER(DLManagedTensorVersioned), POINTER(c_void_p))),
        ("dltensor_from_py_object_no_sync", PYFUNCTYPE(c_int, c_void_p, POINTER(DLTensor))),
        ("current_work_stream", PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))),
    ]

    version: DLPackVersion
    prev_api: int | Any
    managed_tensor_allocator: _CFunctionType
    managed_tensor_from_py_object_no_sync: _CFunctionType
    managed_tensor_to_py_object_no_sync: _CFunctionType
    dltensor_from_py_object_no_sync: _CFunctionType
    current_work_stream: _CFunctionType


class PyArrayInterface(Structure):
    """What the nameless capsule of ``__array_struct__`` points to."""

    _fields_ = [
        ("two", c_int),
        ("nd", c_int),
        ("typekind", c_char),
        ("itemsize", c_int),
        ("flags", c_int),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("data", c_void_p),
        ("descr", c_void_p),
    ]

    two: int
    nd: int
    typekind: bytes
    itemsize: int
    flags: int
    shape: _Pointer[c_ssize_t] | Any
    strides: _Pointer[c_ssize_t] | Any
    data: int | Any
    descr: int | Any
