"""``cimport dlbridge``: take any array, and give one. The same five functions as in C, from ``dlbridge.h``.

The extension is compiled with the folder of ``dlbridge.get_include()``. No function needs to be called first.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "dlbridge.h" nogil:
    ctypedef enum DLDeviceType:
        kDLCPU
        kDLCUDA
        kDLCUDAHost
        kDLOpenCL
        kDLVulkan
        kDLMetal
        kDLVPI
        kDLROCM
        kDLROCMHost
        kDLExtDev
        kDLCUDAManaged
        kDLOneAPI
        kDLWebGPU
        kDLHexagon
        kDLMAIA
        kDLTrn

    ctypedef enum DLDataTypeCode:
        kDLInt
        kDLUInt
        kDLFloat
        kDLOpaqueHandle
        kDLBfloat
        kDLComplex
        kDLBool
        kDLFloat8_e3m4
        kDLFloat8_e4m3
        kDLFloat8_e4m3b11fnuz
        kDLFloat8_e4m3fn
        kDLFloat8_e4m3fnuz
        kDLFloat8_e5m2
        kDLFloat8_e5m2fnuz
        kDLFloat8_e8m0fnu
        kDLFloat6_e2m3fn
        kDLFloat6_e3m2fn
        kDLFloat4_e2m1fn

    enum:
        DLPACK_FLAG_BITMASK_READ_ONLY
        DLPACK_FLAG_BITMASK_IS_COPIED
        DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED

    ctypedef struct DLPackVersion:
        uint32_t major
        uint32_t minor

    ctypedef struct DLDevice:
        DLDeviceType device_type
        int32_t device_id

    ctypedef struct DLDataType:
        uint8_t code
        uint8_t bits
        uint16_t lanes

    ctypedef struct DLTensor:
        void* data
        DLDevice device
        int32_t ndim
        DLDataType dtype
        int64_t* shape              # in elements
        int64_t* strides            # in elements
        uint64_t byte_offset

    ctypedef struct DLManagedTensorVersioned:
        DLPackVersion version
        void* manager_ctx
        void (*deleter)(DLManagedTensorVersioned*) noexcept nogil
        uint64_t flags
        DLTensor dl_tensor

    enum:
        MAX_NDIM "DLBRIDGE_MAX_NDIM"
        WRITABLE "DLBRIDGE_WRITABLE"        # read-only memory is refused
        C_ORDER "DLBRIDGE_C_ORDER"          # compact, the last axis fastest
        ANY_DEVICE "DLBRIDGE_ANY_DEVICE"    # without this flag only host memory is given
        DETACHED "DLBRIDGE_DETACHED"        # gradients are dropped
        OR_COPY "DLBRIDGE_OR_COPY"          # memory that does not meet the want is copied, where a copy helps

    ctypedef struct Want "dlbridge_Want":
        uint32_t size
        uint32_t flags
        const char* name            # what an error begins with, "blur(image)"; or NULL
        DLDataType dtype            # bits 0: any
        int32_t ndim                # 0, with shape NULL: any
        const int64_t* shape        # ndim extents, of which -1 is any; or NULL
        int64_t stream              # 0: the legacy default one
        const DLDataType* dtypes    # dtype_count types, of which it has one, where dtype asks for none; or NULL
        int64_t dtype_count

    # A View must not be copied, since it points into itself.
    ctypedef struct View "dlbridge_View":
        DLTensor tensor
        uint64_t flags
        DLManagedTensorVersioned* owner

    Want want "dlbridge_want"(const char* name, uint32_t flags) noexcept
    DLDataType dtype "dlbridge_dtype"(DLDataTypeCode code, uint8_t bits) noexcept

    # Releases a view, in any thread, with or without the GIL. A second call does nothing.
    void release "dlbridge_release"(View* view) noexcept


cdef extern from "dlbridge.h":
    # Looks at an array for as long as the caller holds obj, or until release(). want may be NULL.
    int view "dlbridge_view"(object obj, const Want* want, View* out) except -1
    # Takes an array that outlives the call. Its deleter is called by any thread, with or without the GIL.
    DLManagedTensorVersioned* acquire "dlbridge_acquire"(object obj, const Want* want) except NULL
    # Makes an array of a library by name, module, type or example. tensor is stolen, also when it fails.
    object deliver "dlbridge_deliver"(DLManagedTensorVersioned* tensor, object to)
    # Describes the caller's memory, or fresh memory if like.data is NULL. If drop is NULL, owner is a Python object.
    DLManagedTensorVersioned* make "dlbridge_make"(
        const DLTensor* like, uint64_t flags, void* owner, void (*drop)(void*) noexcept nogil) except NULL


cdef inline object as_tensor(object obj, const Want* want):
    """A dlbridge.Tensor of an array as it is wanted: ``cdef float[:, ::1] image = dlbridge.as_tensor(obj, &want)``."""
    return deliver(acquire(obj, want), "dlbridge")
