"""Managed: own memory, describe it, validate it once, and let it go exactly once."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from dlbridge.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION,
    kDLCPU,
    kDLCUDA,
    kDLCUDAHost,
    kDLCUDAManaged,
    kDLOneAPI,
    kDLOpenCL,
    kDLROCM,
    kDLROCMHost,
    kDLTrn,
    kDLVulkan,
)
from dlbridge.dtypes cimport NO_ROW, describe, find_dlpack, get_row
from dlbridge.layout cimport (
    LARGEST_SPAN,
    NEGATIVE_EXTENT,
    TOO_MANY_ELEMENTS,
    LayoutFault,
    Span,
    fill_compact,
    is_compact,
    measure,
    settle_idle_axes,
)

from dlbridge.errors import REPORT, ConversionError, DeviceError, refusal


cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
      #define DLBRIDGE_FINALIZING() Py_IsFinalizing()
    #else
      #define DLBRIDGE_FINALIZING() _Py_IsFinalizing()
    #endif
    /* Objects may still be let go: the interpreter is up, and if it is going down, this thread is the one doing it
       (any other that asks for the GIL then is stopped for ever). */
    static inline int dlbridge_python_alive(void) {
        return Py_IsInitialized() && (!DLBRIDGE_FINALIZING() || PyGILState_Check());
    }
    #define dlbridge_exchange(where, value) __atomic_exchange_n(where, value, __ATOMIC_ACQ_REL)
    #define dlbridge_add_to(where, value) __atomic_add_fetch(where, value, __ATOMIC_ACQ_REL)
    static __thread int32_t dlbridge_depth;
    static __thread void *dlbridge_waiting;
    _Static_assert(sizeof(void *) == 8, "dlbridge is for 64-bit machines");
    """
    int32_t depth "dlbridge_depth"      # of releases within releases, in this thread
    void* waiting "dlbridge_waiting"    # for the outermost of them
    bint python_alive "dlbridge_python_alive"() noexcept nogil
    int32_t exchange "dlbridge_exchange"(int32_t* where, int32_t value) noexcept nogil
    int32_t add_to "dlbridge_add_to"(int32_t* where, int32_t value) noexcept nogil


# Declared without the GIL, since deleters are called without it and see for themselves.
cdef extern from "Python.h":
    ctypedef int PyGILState_STATE
    PyGILState_STATE PyGILState_Ensure() noexcept nogil
    void PyGILState_Release(PyGILState_STATE state) noexcept nogil
    bint PyGILState_Check() noexcept nogil
    void* PyGILState_GetThisThreadState() noexcept nogil
    PyObject* PyErr_Occurred() noexcept nogil
    void PyErr_Fetch(PyObject** kind, PyObject** value, PyObject** traceback) noexcept nogil
    void PyErr_Restore(PyObject* kind, PyObject* value, PyObject* traceback) noexcept nogil
    void PyBuffer_Release(Py_buffer* view) noexcept nogil
    void Py_DECREF(PyObject* obj) noexcept nogil

cdef enum:
    DEEPEST = 64                # releases within releases
    KNOWN_FLAGS = (
        DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)

cdef tuple PROTOCOL_NAMES = (
    "numpy",
    "exchange_api",
    "dlpack",
    "dlpack (legacy)",
    "cuda_array_interface",
    "array_struct",
    "array_interface",
    "buffer",
    "dlbridge",
)

# Where data is an address that an offset can be added to; on the others it is a handle (OpenCL's cl_mem).
cdef uint32_t ADDRESSED = (
    1 << kDLCPU | 1 << kDLCUDA | 1 << kDLCUDAHost | 1 << kDLROCM | 1 << kDLROCMHost | 1 << kDLCUDAManaged
    | 1 << kDLOneAPI)


# ---- make ----------------------------------------------------------------------------------------------------------

cdef Managed* managed_new(Protocol protocol, int64_t ndim, size_t extra_bytes=0) except NULL:
    """An unowned block on the CPU with room for ndim extents and strides, and then extra_bytes."""
    cdef Managed* managed
    cdef DLTensor* tensor
    if not 0 <= ndim <= MAX_NDIM:
        raise refusal(ConversionError, protocol_name(protocol), "ndim", ndim, "is outside 0..64", "reshape it")
    managed = <Managed*> malloc(sizeof(Managed) + 2 * ndim * sizeof(int64_t) + extra_bytes)
    if managed == NULL:
        raise MemoryError
    managed.abi.version.major = DLPACK_MAJOR_VERSION
    managed.abi.version.minor = DLPACK_MINOR_VERSION
    managed.abi.manager_ctx = managed.legacy_manager_ctx = managed
    managed.abi.deleter = versioned_deleter
    managed.legacy_deleter = legacy_deleter
    managed.abi.flags = 0
    tensor = &managed.abi.dl_tensor
    tensor.data = NULL
    tensor.byte_offset = 0
    tensor.ndim = <int32_t> ndim
    tensor.device.device_type = kDLCPU
    tensor.device.device_id = 0
    tensor.shape = <int64_t*> (managed + 1)
    tensor.strides = tensor.shape + ndim
    managed.state = LIVE
    managed.references = 1
    managed.release = release_nothing
    managed.owner = NULL
    managed.row = NO_ROW
    managed.marks = 0
    managed.protocol = protocol
    return managed


cdef Managed* managed_from_tensor(Protocol protocol, const DLTensor* tensor, uint64_t flags) except NULL:
    """An unowned, validated description of somebody else's DLTensor; nothing of theirs is kept but the address.

    Shape and strides are copied, so that a producer which changes them later changes nothing that was checked.
    """
    cdef Managed* managed = managed_new(protocol, tensor.ndim)
    cdef DLTensor* ours = &managed.abi.dl_tensor
    cdef size_t extents_bytes = tensor.ndim * sizeof(int64_t)
    managed.abi.flags = flags & KNOWN_FLAGS
    ours.data = tensor.data
    ours.byte_offset = tensor.byte_offset
    ours.device = tensor.device
    ours.dtype = tensor.dtype
    if tensor.ndim:
        if tensor.shape == NULL:
            managed_release(managed)
            raise refusal(ConversionError, protocol_name(protocol), "shape", "NULL",
                          f"has no extents for ndim {tensor.ndim}", REPORT)
        memcpy(ours.shape, tensor.shape, extents_bytes)
        if tensor.strides != NULL:
            memcpy(ours.strides, tensor.strides, extents_bytes)
        else:
            # DLPack before 1.2: NULL strides are compact, in C order.
            fill_compact(tensor.ndim, ours.shape, ours.strides)
    return managed_checked(managed)


cdef Managed* managed_take_versioned(Protocol protocol, DLManagedTensorVersioned* foreign) except NULL:
    """Take over a foreign block; on failure too, it is let go."""
    cdef Managed* managed
    try:
        if foreign.version.major != DLPACK_MAJOR_VERSION:
            raise refusal(ConversionError, protocol_name(protocol), "version", foreign.version.major,
                          "is a major version that dlbridge does not read", "update dlbridge")
        managed = managed_from_tensor(protocol, &foreign.dl_tensor, foreign.flags)
    except BaseException:
        if foreign.deleter != NULL:
            foreign.deleter(foreign)
        raise
    managed_own_versioned(managed, foreign)
    return managed


cdef Managed* managed_share(Managed* base) except NULL:
    """The same memory once more, with an owner and a deleter of its own, for one more consumer."""
    cdef Managed* managed = managed_new(base.protocol, base.abi.dl_tensor.ndim)
    cdef int64_t* shape = managed.abi.dl_tensor.shape
    cdef int64_t* strides = managed.abi.dl_tensor.strides
    managed.abi.flags = base.abi.flags & ~<uint64_t> DLPACK_FLAG_BITMASK_IS_COPIED
    managed.abi.dl_tensor = base.abi.dl_tensor
    managed.abi.dl_tensor.shape = shape
    managed.abi.dl_tensor.strides = strides
    memcpy(shape, base.abi.dl_tensor.shape, 2 * base.abi.dl_tensor.ndim * sizeof(int64_t))
    managed.count = base.count
    managed.item_bytes = base.item_bytes
    managed.low_bytes = base.low_bytes
    managed.high_bytes = base.high_bytes
    managed.row = base.row
    managed.marks = base.marks
    managed_retain(base)
    managed.owner = base
    managed.release = release_base
    return managed


cdef void managed_set_row(Managed* managed, int32_t row) noexcept nogil:
    managed.row = row
    managed.item_bytes = get_row(row).item_bytes
    managed.abi.dl_tensor.dtype = get_row(row).dlpack


cdef void managed_set_byte_strides(Managed* managed, const Py_ssize_t* strides_bytes) noexcept nogil:
    """Take strides in bytes, after shape and row: in elements where they are whole, else as they are and marked."""
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef int64_t stride
    cdef int32_t axis
    for axis in range(tensor.ndim):
        stride = strides_bytes[axis] / managed.item_bytes
        if stride * managed.item_bytes != strides_bytes[axis] and tensor.shape[axis] > 1:
            managed.marks |= BYTE_STRIDES
            memcpy(tensor.strides, strides_bytes, tensor.ndim * sizeof(int64_t))
            break
        tensor.strides[axis] = stride


# ---- validate, once for every path ---------------------------------------------------------------------------------

cdef Managed* managed_checked(Managed* managed) except NULL:
    """Validate what the struct can reveal, and derive row, count and span; on failure the block is released."""
    try:
        check_dtype(managed)
        check_layout(managed)
        check_memory(managed)
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef int check_dtype(Managed* managed) except -1:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    if managed.row == NO_ROW:
        managed.row = find_dlpack(tensor.dtype)
        if managed.row == NO_ROW:
            raise refused(managed, "dtype", describe(tensor.dtype), "is no type that dlbridge knows",
                          "view it as integers of the same size first")
    managed.item_bytes = get_row(managed.row).item_bytes
    if get_row(managed.row).subbyte and not managed.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED:
        managed.item_bytes = 0
    return 0


cdef int check_layout(Managed* managed) except -1:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef bint in_bytes = managed.marks & BYTE_STRIDES
    cdef bint packed = managed_packed(managed)
    cdef LayoutFault fault
    cdef Span span
    # A stride of packed elements is below a byte; it is measured as one, since packed memory must be compact anyway.
    fault = measure(
        tensor.ndim, tensor.shape, tensor.strides, 1 if in_bytes or packed else managed.item_bytes,
        max(managed.item_bytes, 1), &span)
    if not fault and packed and span.count > LARGEST_SPAN // tensor.dtype.bits:
        fault = TOO_MANY_ELEMENTS       # their bits are counted before they are bytes
    if fault:
        raise refused_layout(managed, fault)
    managed.count, managed.low_bytes, managed.high_bytes = span.count, span.low_bytes, span.high_bytes
    settle_idle_axes(tensor.ndim, tensor.shape, tensor.strides, span.count, managed.item_bytes if in_bytes else 1)
    if packed:
        if not is_compact(tensor.ndim, tensor.shape, tensor.strides):
            raise refused(managed, "strides", managed_strides(managed),
                          f"of packed {describe(tensor.dtype)} are not compact", "make it contiguous first")
        managed.high_bytes = managed_nbytes(managed)
    return 0


cdef int check_memory(Managed* managed) except -1:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    if tensor.data == NULL and managed.count:
        raise refused(managed, "data", "NULL", f"has no memory for {managed.count} elements",
                      "materialise it first: fake, meta, functionalized and resized tensors have none")
    if not is_device(tensor.device.device_type):
        raise refusal(DeviceError, protocol_name(managed.protocol), "device_type", tensor.device.device_type,
                      "is no device of DLPack 1.3", "update dlbridge, or move it to the CPU")
    if tensor.byte_offset > <uint64_t> LARGEST_SPAN:
        raise refused(managed, "byte_offset", tensor.byte_offset, "is beyond any address", REPORT)
    if tensor.byte_offset and 1 << tensor.device.device_type & ADDRESSED:
        # Nearly every producer leaves byte_offset at 0, and some consumers refuse another (cutlass#3450): fold it in.
        tensor.data = managed_data(managed)
        tensor.byte_offset = 0
    return 0


cdef bint is_device(int32_t device_type) noexcept nogil:
    # C enums are unsigned: without the casts a negative type would pass.
    return <int> kDLCPU <= device_type <= <int> kDLOpenCL or <int> kDLVulkan <= device_type <= <int> kDLTrn


cdef object refused(Managed* managed, field, value, wrong, way_out):
    return refusal(ConversionError, protocol_name(managed.protocol), field, value, wrong, way_out)


cdef object refused_layout(Managed* managed, LayoutFault fault):
    shape = managed_shape(managed)
    if fault == NEGATIVE_EXTENT:
        return refused(managed, "shape", shape, "has a negative extent", REPORT)
    if fault == TOO_MANY_ELEMENTS:
        return refused(managed, "shape", shape, "has more bytes than any memory", REPORT)
    strides = managed_strides(managed)
    return refused(managed, "strides", f"{strides} of shape {shape}", "reach beyond any memory", REPORT)


cdef object take_error():
    """The exception that a C call left behind, or None: not every library sets one when it fails."""
    try:
        _raise_pending()
    except Exception as error:
        return error
    return None


cdef int _raise_pending() except -1:
    return -1 if PyErr_Occurred() != NULL else 0


# ---- own and release -----------------------------------------------------------------------------------------------

cdef void managed_own_object(Managed* managed, object owner) noexcept:
    Py_INCREF(owner)
    managed.owner = <void*> owner
    managed.release = release_object


cdef void managed_own_buffer(Managed* managed, Py_buffer* view) noexcept:
    """Take over a filled Py_buffer; managed_new() was asked for its room."""
    memcpy(buffer_of(managed), view, sizeof(Py_buffer))
    managed.release = release_buffer


cdef void managed_own_memory(Managed* managed, void* memory) noexcept nogil:
    managed.owner = memory
    managed.release = release_memory


cdef void managed_own_versioned(Managed* managed, DLManagedTensorVersioned* foreign) noexcept nogil:
    managed.owner = foreign
    managed.release = release_versioned


cdef void managed_own_legacy(Managed* managed, DLManagedTensor* foreign) noexcept nogil:
    managed.owner = foreign
    managed.release = release_legacy


cdef Py_buffer* buffer_of(Managed* managed) noexcept nogil:
    return <Py_buffer*> (managed.abi.dl_tensor.shape + 2 * managed.abi.dl_tensor.ndim)


cdef void release_nothing(Managed* managed) noexcept nogil:
    pass


cdef void release_memory(Managed* managed) noexcept nogil:
    free(managed.owner)


cdef void release_base(Managed* managed) noexcept nogil:
    managed_forget(<Managed*> managed.owner)


cdef void release_object(Managed* managed) noexcept nogil:
    if python_alive():
        drop_holding_gil(managed, drop_object)


cdef void release_buffer(Managed* managed) noexcept nogil:
    if python_alive():
        drop_holding_gil(managed, drop_buffer)


cdef void release_versioned(Managed* managed) noexcept nogil:
    release_foreign(managed, drop_versioned)


cdef void release_legacy(Managed* managed) noexcept nogil:
    release_foreign(managed, drop_legacy)


cdef void release_foreign(Managed* managed, Release drop) noexcept nogil:
    """A foreign deleter takes the GIL if it needs it; but in a thread of Python's an exception may be on its way.

    torch lets the GIL go before it calls a deleter, so holding it is no sign.
    """
    if python_alive() and PyGILState_GetThisThreadState() != NULL:
        drop_holding_gil(managed, drop)
    else:
        drop(managed)


cdef void drop_holding_gil(Managed* managed, Release drop) noexcept nogil:
    cdef PyGILState_STATE state
    if PyGILState_Check():
        drop_keeping_error(managed, drop)
    else:
        state = PyGILState_Ensure()
        drop_keeping_error(managed, drop)
        PyGILState_Release(state)


cdef void drop_keeping_error(Managed* managed, Release drop) noexcept nogil:
    """Run somebody's destructor without losing an exception that is on its way (python_spec of DLPack)."""
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* traceback
    if PyErr_Occurred() == NULL:
        drop(managed)
    else:
        PyErr_Fetch(&kind, &value, &traceback)
        drop(managed)
        PyErr_Restore(kind, value, traceback)


# The GIL is held in these two: the declarations of Python.h above do not ask for it.
cdef void drop_object(Managed* managed) noexcept nogil:
    Py_DECREF(<PyObject*> managed.owner)


cdef void drop_buffer(Managed* managed) noexcept nogil:
    PyBuffer_Release(buffer_of(managed))


cdef void drop_versioned(Managed* managed) noexcept nogil:
    cdef DLManagedTensorVersioned* foreign = <DLManagedTensorVersioned*> managed.owner
    if foreign.deleter != NULL:
        foreign.deleter(foreign)


cdef void drop_legacy(Managed* managed) noexcept nogil:
    cdef DLManagedTensor* foreign = <DLManagedTensor*> managed.owner
    if foreign.deleter != NULL:
        foreign.deleter(foreign)


cdef void managed_retain(Managed* managed) noexcept nogil:
    add_to(&managed.references, 1)


cdef void managed_forget(Managed* managed) noexcept nogil:
    """Drop a reference; the last one frees the block, and lets the owner go where nobody has yet."""
    if add_to(&managed.references, -1) == 0:
        if exchange(&managed.state, RELEASED) == LIVE:
            managed.references = 1      # release_soon()'s own
            release_soon(managed)
        else:
            free(managed)


cdef void managed_release(Managed* managed) noexcept nogil:
    """Let the owner go now, whoever still refers to the block, and drop a reference. What a deleter does."""
    if exchange(&managed.state, RELEASED) == LIVE:
        release_soon(managed)
    else:
        managed_forget(managed)


cdef void release_soon(Managed* managed) noexcept nogil:
    """Let the owner go, which may let go another one, and so on: chains of any length need no more stack than DEEPEST.

    Memory that went to and fro between libraries is such a chain. Deeper owners wait for the outermost release, which
    runs them before it returns. Takes over a reference.
    """
    global waiting
    cdef Managed* first
    if depth == DEEPEST:
        managed.next = <Managed*> waiting
        waiting = managed
        return
    release_and_forget(managed)
    while depth == 0 and waiting != NULL:
        first = <Managed*> waiting
        waiting = first.next
        release_and_forget(first)


cdef void release_and_forget(Managed* managed) noexcept nogil:
    global depth
    depth += 1
    managed.release(managed)
    depth -= 1
    managed_forget(managed)


cdef void versioned_deleter(DLManagedTensorVersioned* tensor) noexcept nogil:
    managed_release(<Managed*> tensor.manager_ctx)


cdef void legacy_deleter(DLManagedTensor* tensor) noexcept nogil:
    managed_release(<Managed*> tensor.manager_ctx)


# ---- read ----------------------------------------------------------------------------------------------------------

cdef int64_t managed_nbytes(const Managed* managed) noexcept nogil:
    """The bytes of the elements alone; packed elements round up once, in total."""
    if managed.item_bytes:
        return managed.count * managed.item_bytes
    return (managed.count * managed.abi.dl_tensor.dtype.bits + 7) // 8


cdef str protocol_name(Protocol protocol):
    return PROTOCOL_NAMES[<int> protocol]


cdef object managed_owner(Managed* managed):
    """The object that the memory is kept alive by, or None."""
    if managed.release == release_object:
        return <object> managed.owner
    if managed.release == release_buffer:
        return buffer_of(managed).obj
    return managed_owner(<Managed*> managed.owner) if managed.release == release_base else None


cdef tuple managed_shape(const Managed* managed):
    return tuple([managed.abi.dl_tensor.shape[axis] for axis in range(managed.abi.dl_tensor.ndim)])


cdef tuple managed_strides(const Managed* managed):
    return tuple([managed.abi.dl_tensor.strides[axis] for axis in range(managed.abi.dl_tensor.ndim)])
