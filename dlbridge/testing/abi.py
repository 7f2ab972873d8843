"""The C structures of DLPack 1.3 and of ``__array_struct__``, for ctypes."""

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

CPU = 1
CUDA = 2
READ_ONLY = 1
IS_COPIED = 2
SUBBYTE_PADDED = 4

LEGACY_NAME = b"dltensor"
USED_LEGACY_NAME = b"used_dltensor"
VERSIONED_NAME = b"dltensor_versioned"
USED_VERSIONED_NAME = b"used_dltensor_versioned"
EXCHANGE_NAME = b"dlpack_exchange_api"

# A deleter takes the address of its own struct. Any thread can call it, with or without the GIL.
Deleter = CFUNCTYPE(None, c_void_p)


class DLPackVersion(Structure):
    """The version of a versioned struct, and of an exchange table."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class DLDevice(Structure):
    """Where memory is."""

    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    """What an element is."""

    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


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


class DLManagedTensor(Structure):
    """What a capsule named "dltensor" points to."""

    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", Deleter)]


class DLManagedTensorVersioned(Structure):
    """What a capsule named "dltensor_versioned" points to."""

    _fields_ = [
        ("version", DLPackVersion),
        ("manager_ctx", c_void_p),
        ("deleter", Deleter),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    ]


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
