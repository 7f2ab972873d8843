"""DLPack 1.3: every struct, code, flag and capsule name. No other module has its literals.

The order and the meaning of the fields are those of the standard's header. The numbers in brackets are byte offsets
on a 64-bit machine; tests/targets/test_abi.py compares them with those of ctypes.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef enum:
    DLPACK_MAJOR_VERSION = 1
    DLPACK_MINOR_VERSION = 3


cdef enum DLDeviceType:
    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17
    kDLTrn = 18


cdef enum DLDataTypeCode:
    kDLInt = 0
    kDLUInt = 1
    kDLFloat = 2
    kDLOpaqueHandle = 3
    kDLBfloat = 4
    kDLComplex = 5
    kDLBool = 6
    kDLFloat8_e3m4 = 7
    kDLFloat8_e4m3 = 8
    kDLFloat8_e4m3b11fnuz = 9
    kDLFloat8_e4m3fn = 10
    kDLFloat8_e4m3fnuz = 11
    kDLFloat8_e5m2 = 12
    kDLFloat8_e5m2fnuz = 13
    kDLFloat8_e8m0fnu = 14
    kDLFloat6_e2m3fn = 15
    kDLFloat6_e3m2fn = 16
    kDLFloat4_e2m1fn = 17
    DATA_TYPE_CODES = 18            # how many there are


cdef enum DLFlags:
    DLPACK_FLAG_BITMASK_READ_ONLY = 1
    DLPACK_FLAG_BITMASK_IS_COPIED = 2
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED = 4


# Streams as the array API standard numbers them. 0 is refused, since the standard calls it ambiguous.
cdef enum:
    STREAM_UNORDERED = -1
    STREAM_LEGACY_DEFAULT = 1
    STREAM_PER_THREAD_DEFAULT = 2


ctypedef struct DLPackVersion:
    uint32_t major                  # [0]
    uint32_t minor                  # [4]

ctypedef struct DLDevice:
    int32_t device_type             # [0]
    int32_t device_id               # [4]

ctypedef struct DLDataType:
    uint8_t code                    # [0]
    uint8_t bits                    # [1]
    uint16_t lanes                  # [2]

ctypedef struct DLTensor:
    void* data                      # [0]
    DLDevice device                 # [8]
    int32_t ndim                    # [16]
    DLDataType dtype                # [20]
    int64_t* shape                  # [24]
    int64_t* strides                # [32] in elements
    uint64_t byte_offset            # [40]

ctypedef struct DLManagedTensor
ctypedef struct DLManagedTensorVersioned

ctypedef void (*LegacyDeleter)(DLManagedTensor*) noexcept nogil
ctypedef void (*VersionedDeleter)(DLManagedTensorVersioned*) noexcept nogil

ctypedef struct DLManagedTensor:
    DLTensor dl_tensor              # [0]
    void* manager_ctx               # [48]
    LegacyDeleter deleter           # [56] may be NULL

ctypedef struct DLManagedTensorVersioned:
    DLPackVersion version           # [0]
    void* manager_ctx               # [8]
    VersionedDeleter deleter        # [16] may be NULL
    uint64_t flags                  # [24] the last field that another major version keeps
    DLTensor dl_tensor              # [32]


# The C exchange API: five functions behind a capsule on the type. They are declared noexcept, and their return code is
# tested by hand, because foreign code can fail without setting an exception (cuda.core).
ctypedef void (*SetError)(void* context, const char* kind, const char* message) noexcept
ctypedef int (*ManagedTensorAllocator)(
    DLTensor* prototype, DLManagedTensorVersioned** out, void* context, SetError set_error) noexcept
ctypedef int (*ManagedTensorFromPyObject)(void* obj, DLManagedTensorVersioned** out) noexcept
ctypedef int (*ManagedTensorToPyObject)(DLManagedTensorVersioned* tensor, void** out) noexcept
ctypedef int (*TensorFromPyObject)(void* obj, DLTensor* out) noexcept
ctypedef int (*CurrentWorkStream)(int32_t device_type, int32_t device_id, void** out) noexcept

ctypedef struct DLPackExchangeAPIHeader:
    DLPackVersion version           # [0]
    DLPackExchangeAPIHeader* prev_api   # [8] an older table of the same library, or NULL

ctypedef struct DLPackExchangeAPI:
    DLPackExchangeAPIHeader header              # [0]
    ManagedTensorAllocator managed_tensor_allocator                     # [16]
    ManagedTensorFromPyObject managed_tensor_from_py_object_no_sync     # [24]
    ManagedTensorToPyObject managed_tensor_to_py_object_no_sync         # [32] steals, also when it fails
    TensorFromPyObject dltensor_from_py_object_no_sync                  # [40] may be NULL
    CurrentWorkStream current_work_stream                               # [48]


# Capsule names, from python_spec of the standard. PyCapsule keeps only a pointer to its name, so a name must live for
# ever.
cdef extern from *:
    """
    #define DLBRIDGE_LEGACY_NAME "dltensor"
    #define DLBRIDGE_USED_LEGACY_NAME "used_dltensor"
    #define DLBRIDGE_VERSIONED_NAME "dltensor_versioned"
    #define DLBRIDGE_USED_VERSIONED_NAME "used_dltensor_versioned"
    #define DLBRIDGE_EXCHANGE_NAME "dlpack_exchange_api"
    """
    const char* LEGACY_NAME "DLBRIDGE_LEGACY_NAME"
    const char* USED_LEGACY_NAME "DLBRIDGE_USED_LEGACY_NAME"
    const char* VERSIONED_NAME "DLBRIDGE_VERSIONED_NAME"
    const char* USED_VERSIONED_NAME "DLBRIDGE_USED_VERSIONED_NAME"
    const char* EXCHANGE_NAME "DLBRIDGE_EXCHANGE_NAME"
