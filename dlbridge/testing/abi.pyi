"""The C structures of DLPack 1.3 and of ``__array_struct__``, for ctypes."""

from ctypes import Structure, _CFunctionType, _Pointer, c_int64, c_ssize_t
from typing import Any, Final

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

# A null pointer reads as None, so pointers below are Any too.
Deleter: type[_CFunctionType]
SetError: type[_CFunctionType]

class DLPackVersion(Structure):
    major: int
    minor: int

class DLDevice(Structure):
    device_type: int
    device_id: int

class DLDataType(Structure):
    code: int
    bits: int
    lanes: int

class DLTensor(Structure):
    data: int | Any
    device: DLDevice
    ndim: int
    dtype: DLDataType
    shape: _Pointer[c_int64] | Any
    strides: _Pointer[c_int64] | Any
    byte_offset: int

class DLManagedTensor(Structure):
    dl_tensor: DLTensor
    manager_ctx: int | Any
    deleter: _CFunctionType

class DLManagedTensorVersioned(Structure):
    version: DLPackVersion
    manager_ctx: int | Any
    deleter: _CFunctionType
    flags: int
    dl_tensor: DLTensor

class DLPackExchangeAPI(Structure):
    version: DLPackVersion
    prev_api: int | Any
    managed_tensor_allocator: _CFunctionType
    managed_tensor_from_py_object_no_sync: _CFunctionType
    managed_tensor_to_py_object_no_sync: _CFunctionType
    dltensor_from_py_object_no_sync: _CFunctionType
    current_work_stream: _CFunctionType

class PyArrayInterface(Structure):
    two: int
    nd: int
    typekind: bytes
    itemsize: int
    flags: int
    shape: _Pointer[c_ssize_t] | Any
    strides: _Pointer[c_ssize_t] | Any
    data: int | Any
    descr: int | Any
