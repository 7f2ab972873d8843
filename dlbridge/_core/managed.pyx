"""Managed: own memory, describe it, validate it once, and let it go exactly once."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION,
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
from dlbridge._core.atomic cimport add, exchange_byte, load
from dlbridge._core.dtypes cimport NO_ROW, describe, find_dlpack, get_row
from dlbridge._core.layout cimport (
    BACKWARD,
    LARGEST_SPAN,
    NEGATIVE_EXTENT,
    REPEATED,
    SPAN_TOO_LARGE,
    STRIDED,
    TOO_MANY_ELEMENTS,
    LayoutFault,
    Span,
    fill_compact,
    is_plain,
    multiply_overflows,
    settle,
    span_of,
)

from dlbridge.errors import REPORT, ConversionError, DeviceError, refusal


cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
      #define DLBRIDGE_FINALIZING() Py_IsFinalizing()
      #define DLBRIDGE_RUNNING_STATE() PyThreadState_GetUnchecked()
    #else
      #define DLBRIDGE_FINALIZING() _Py_IsFinalizing()
      #define DLBRIDGE_RUNNING_STATE() _PyThreadState_UncheckedGet()
    #endif
    #define DLBRIDGE_PYTHON_RUNS() (Py_IsInitialized() && !DLBRIDGE_FINALIZING())
    /* PyGILState_Check() would say yes to every thread once there is a subinterpreter anywhere in the process. */
    static inline int dlbridge_holds_gil(void) {
        PyThreadState *mine = PyGILState_GetThisThreadState();
        return mine != NULL && mine == DLBRIDGE_RUNNING_STATE();
    }
    static inline PyObject *dlbridge_take_raised(void) {
    #if PY_VERSION_HEX >= 0x030C0000
        return PyErr_GetRaisedException();
    #else
        PyObject *kind, *error, *traceback;
        PyErr_Fetch(&kind, &error, &traceback);
        if (kind == NULL) {
            return NULL;
        }
        PyErr_NormalizeException(&kind, &error, &traceback);
        if (traceback != NULL) {
            PyException_SetTraceback(error, traceback);
        }
        Py_DECREF(kind);
        Py_XDECREF(traceback);
        return error;
    #endif
    }
    #define dlbridge_exporter(view) (((Py_buffer *) (view))->obj)
    /* Of an object to which the caller has a reference and whose count nobody else can change meanwhile. */
    #ifdef Py_GIL_DISABLED
      #define DLBRIDGE_OTHERS_HOLD(obj) 0
    #else
      #define DLBRIDGE_OTHERS_HOLD(obj) (Py_REFCNT(obj) > 1)
    #endif
    typedef struct {
        int32_t depth;
        void *waiting;
    } dlbridge_Releases;
    static __thread dlbridge_Releases dlbridge_releases;
    /* The empty asm keeps the address in a register: a compiler would ask for it again after every call. */
    static inline dlbridge_Releases *dlbridge_releases_here(void) {
        dlbridge_Releases *here = &dlbridge_releases;
        __asm__("" : "+r"(here));
        return here;
    }
    _Static_assert(sizeof(void *) == 8, "dlbridge is for 64-bit machines");
    """
    ctypedef struct Releases "dlbridge_Releases":
        int32_t depth                   # of releases within releases, in this thread
        void* waiting                   # for the outermost of them
    Releases* releases_here "dlbridge_releases_here"() noexcept nogil
    bint python_runs "DLBRIDGE_PYTHON_RUNS"() noexcept nogil
    bint holds_gil "dlbridge_holds_gil"() noexcept nogil
    PyObject* take_raised "dlbridge_take_raised"()
    PyObject* exporter "dlbridge_exporter"(void* view) noexcept nogil
    bint others_hold "DLBRIDGE_OTHERS_HOLD"(PyObject* obj) noexcept nogil


# Declared without the GIL, since deleters are called without it and see for themselves.
cdef extern from "Python.h":
    ctypedef int PyGILState_STATE
    PyGILState_STATE PyGILState_Ensure() noexcept nogil
    void PyGILState_Release(PyGILState_STATE state) noexcept nogil
    void* PyGILState_GetThisThreadState() noexcept nogil
    PyObject* PyErr_Occurred() noexcept nogil
    void PyErr_Fetch(PyObject** kind, PyObject** value, PyObject** traceback) noexcept nogil
    void PyErr_Restore(PyObject* kind, PyObject* value, PyObject* traceback) noexcept nogil
    void PyBuffer_Release(Py_buffer* view) noexcept nogil
    void Py_DECREF(PyObject* obj) noexcept nogil

cdef enum:
    DEEPEST = 64                # releases within releases
    FORM = BACKWARD | REPEATED | STRIDED
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
    "arrow",
    "buffer",
    "dlbridge",
)

# Where data is an address that an offset can be added to; on the others it is a handle (OpenCL's cl_mem).
cdef uint32_t ADDRESSED = (
    1 << kDLCPU | 1 << kDLCUDA | 1 << kDLCUDAHost | 1 << kDLROCM | 1 << kDLROCMHost | 1 << kDLCUDAManaged
    | 1 << kDLOneAPI)


# ---- make ----------------------------------------------------------------------------------------------------------

cdef Managed* managed_take_buffer(Protocol protocol, Py_buffer* view) except NULL:
    """A block that owns a filled Py_buffer and has room for its axes; on failure the export is let go."""
    cdef Managed* managed = new_block(protocol, view.ndim, sizeof(Py_buffer))
    if managed == NULL:
        PyBuffer_Release(view)
        return refuse_block(protocol, view.ndim)
    managed_own(managed, OWNS_BUFFER, managed.abi.dl_tensor.strides + view.ndim)
    move_buffer(<Py_buffer*> managed.abi.manager_ctx, view)
    return managed


cdef void move_buffer(Py_buffer* into, Py_buffer* view) noexcept nogil:
    """PyBuffer_FillInfo() lets shape and strides of plain bytes point into the Py_buffer itself."""
    into[0] = view[0]
    if view.shape == &view.len:
        into.shape = &into.len
    if view.strides == &view.itemsize:
        into.strides = &into.itemsize


cdef Managed* refuse_block(Protocol protocol, int64_t ndim) except NULL:
    if 0 <= ndim <= MAX_NDIM:
        raise MemoryError
    raise refusal(ConversionError, protocol_name(protocol), "ndim", ndim, "is outside 0..64", "reshape it")


cdef Managed* managed_from_tensor(Protocol protocol, const DLTensor* tensor, uint64_t flags) except NULL:
    """An unowned, validated description of somebody else's DLTensor; nothing of theirs is kept but the address.

    Shape and strides are copied, so that a producer which changes them later changes nothing that was checked.
    """
    cdef Managed* managed = managed_new(protocol, tensor.ndim)
    cdef DLTensor* ours = &managed.abi.dl_tensor
    cdef int32_t axis
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
        for axis in range(tensor.ndim):
            ours.shape[axis] = tensor.shape[axis]
            if tensor.strides != NULL:
                ours.strides[axis] = tensor.strides[axis]
        if tensor.strides == NULL:
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


cdef Managed* managed_like(const Managed* base) except NULL:
    """The same description once more, without an owner."""
    cdef Managed* managed = managed_new(<Protocol> base.protocol, base.abi.dl_tensor.ndim)
    cdef int64_t* shape = managed.abi.dl_tensor.shape
    cdef int64_t* strides = managed.abi.dl_tensor.strides
    managed.abi.flags = base.abi.flags & ~<uint64_t> DLPACK_FLAG_BITMASK_IS_COPIED
    managed.abi.dl_tensor = base.abi.dl_tensor
    managed.abi.dl_tensor.shape = shape
    managed.abi.dl_tensor.strides = strides
    memcpy(shape, base.abi.dl_tensor.shape, 2 * base.abi.dl_tensor.ndim * sizeof(int64_t))
    managed.row = base.row
    managed.marks = base.marks
    return managed


cdef Managed* managed_share(Managed* base) except NULL:
    """The same memory once more, with an owner and a deleter of its own, for one more consumer."""
    cdef Managed* managed = managed_like(base)
    managed_retain(base)
    managed_own(managed, OWNS_BASE, base)
    return managed


cdef void managed_set_layout(Managed* managed, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes) noexcept nogil:
    """Take shape and strides, after the row; NULL strides are compact.

    In elements where the strides in bytes are whole, else as they are and marked.
    """
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    # Items are powers of two: shifts, for a division would cost ten times as much.
    cdef int shift = get_row(managed.row).item_shift
    cdef int64_t odd_bits = get_row(managed.row).item_bytes - 1
    cdef bint odd = False
    cdef int32_t axis
    if not tensor.ndim:
        return                  # and both may be NULL
    memcpy(tensor.shape, shape, tensor.ndim * sizeof(int64_t))
    if strides_bytes == NULL:
        fill_compact(tensor.ndim, tensor.shape, tensor.strides)
        return
    for axis in range(tensor.ndim):
        tensor.strides[axis] = strides_bytes[axis] >> shift
        if strides_bytes[axis] & odd_bits and shape[axis] > 1:
            odd = True
    if odd:
        managed.marks |= BYTE_STRIDES
        memcpy(tensor.strides, strides_bytes, tensor.ndim * sizeof(int64_t))


cdef bint managed_set_plain(
    Managed* managed, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes, Py_ssize_t nbytes,
) noexcept nogil:
    """Take a layout if it is compact in C order, of so many bytes and far from any limit, after row and data.

    False where it is not: the layout is still to be taken then, and to be checked.
    """
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef int shift = get_row(managed.row).item_shift
    cdef int64_t count = 1
    cdef int32_t axis = tensor.ndim
    while axis:
        axis -= 1
        if shape[axis] < 1 or strides_bytes[axis] != count << shift:
            return False
        tensor.shape[axis] = shape[axis]
        tensor.strides[axis] = count
        if multiply_overflows(count, shape[axis], &count) or count > LARGEST_SPAN >> 8:
            return False
    return tensor.data != NULL and count << shift == nbytes


# ---- validate, once for every path ---------------------------------------------------------------------------------

cdef Managed* managed_checked(Managed* managed) except NULL:
    """Validate what the struct can reveal, and derive row and marks; on failure the block is released."""
    cdef int64_t count = 0
    cdef int fault = dtype_fault(managed) or layout_fault(managed, &count) or memory_fault(managed, count)
    if fault:
        raise refused(managed, fault)
    return managed


cdef enum Fault:                # after layout.LayoutFault
    UNKNOWN_DTYPE = 16
    PACKED_WITH_GAPS
    NO_MEMORY
    UNKNOWN_DEVICE
    FAR_OFFSET


cdef int dtype_fault(Managed* managed) noexcept nogil:
    if managed.row == NO_ROW:
        managed.row = find_dlpack(managed.abi.dl_tensor.dtype)
        if managed.row == NO_ROW:
            return UNKNOWN_DTYPE
    return 0


cdef int layout_fault(Managed* managed, int64_t* count) noexcept nogil:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef bint in_bytes = managed.marks & BYTE_STRIDES
    cdef bint packed = managed_packed(managed)
    # 1 for packed elements: a stride is below a byte then, but packed memory must be compact anyway.
    cdef int64_t item_bytes = get_row(managed.row).item_bytes
    cdef LayoutFault fault
    cdef uint32_t form
    managed.marks &= ~FORM
    if not (in_bytes or packed) and is_plain(tensor.ndim, tensor.shape, tensor.strides, count):
        return 0
    fault = settle(
        tensor.ndim, tensor.shape, tensor.strides, 1 if in_bytes else item_bytes, item_bytes, count, &form)
    if fault:
        return fault
    managed.marks |= form
    if packed:
        if count[0] > LARGEST_SPAN // tensor.dtype.bits:
            return TOO_MANY_ELEMENTS        # their bits are counted before they are bytes
        if form & STRIDED:
            return PACKED_WITH_GAPS
    return 0


cdef int memory_fault(Managed* managed, int64_t count) noexcept nogil:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    if tensor.data == NULL and count:
        return NO_MEMORY
    if tensor.device.device_type != kDLCPU and not is_device(tensor.device.device_type):
        return UNKNOWN_DEVICE
    if tensor.byte_offset > <uint64_t> LARGEST_SPAN:
        return FAR_OFFSET
    if tensor.byte_offset and 1 << tensor.device.device_type & ADDRESSED:
        # Nearly every producer leaves byte_offset at 0, and some consumers refuse another (cutlass#3450): fold it in.
        tensor.data = managed_data(managed)
        tensor.byte_offset = 0
    return 0


cdef bint is_device(int32_t device_type) noexcept nogil:
    # C enums are unsigned: without the casts a negative type would pass.
    return <int> kDLCPU <= device_type <= <int> kDLOpenCL or <int> kDLVulkan <= device_type <= <int> kDLTrn


# By Fault: the error, its field, what is wrong, the way out. What stands in braces is filled in.
cdef dict FAULTS = {
    UNKNOWN_DTYPE: (ConversionError, "dtype", "is no type that dlbridge knows",
                    "view it as integers of the same size first"),
    NEGATIVE_EXTENT: (ConversionError, "shape", "has a negative extent", REPORT),
    TOO_MANY_ELEMENTS: (ConversionError, "shape", "has more bytes than any memory", REPORT),
    SPAN_TOO_LARGE: (ConversionError, "strides", "of shape {shape} reach beyond any memory", REPORT),
    PACKED_WITH_GAPS: (ConversionError, "strides", "of packed {dtype} are not compact", "make it contiguous first"),
    NO_MEMORY: (ConversionError, "data", "has no memory for {count} elements",
                "materialise it first: fake, meta, functionalized and resized tensors have none"),
    UNKNOWN_DEVICE: (DeviceError, "device_type", "is no device of DLPack 1.3",
                     "update dlbridge, or move it to the CPU"),
    FAR_OFFSET: (ConversionError, "byte_offset", "is beyond any address", REPORT),
}


cdef object refused(Managed* managed, int fault):
    """The error for a fault; the block is released."""
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    try:
        error, field, wrong, way_out = FAULTS[fault]
        values = {
            "dtype": describe(tensor.dtype),
            "shape": managed_shape(managed),
            "strides": managed_strides(managed),
            # Of other faults it may be more than 64 bits say.
            "count": managed_count(managed) if fault == NO_MEMORY else None,
            "data": "NULL",
            "device_type": tensor.device.device_type,
            "byte_offset": tensor.byte_offset,
        }
        return refusal(error, protocol_name(<Protocol> managed.protocol), field, values[field], wrong.format(**values),
                       way_out)
    finally:
        managed_release(managed)


cdef object take_error():
    """The exception that a C call left behind, or None: not every library sets one when it fails."""
    # Not by raising and catching it, for which Cython needs memory: without, it takes a missing exception for one.
    cdef PyObject* raised = take_raised()
    if raised == NULL:
        return None
    error = <object> raised
    Py_DECREF(raised)
    if not isinstance(error, Exception):
        raise error                             # KeyboardInterrupt is nobody's answer
    return error


cdef int raise_pending() except -1:
    """Raise the exception that a C call left behind, if it did."""
    return -1 if PyErr_Occurred() != NULL else 0


# ---- own and release -----------------------------------------------------------------------------------------------

cdef object managed_unwrapped(Managed* managed):
    """The object that alone keeps the memory alive, the block being freed; or None, and the block stays.

    For a consumer that can hold an object itself, and tells nobody that the memory is writable when it is not.
    """
    if managed.owns != OWNS_OBJECT or load(&managed.references) != 1 or (
            managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY):
        return None
    owner = <object> managed.abi.manager_ctx
    Py_DECREF(<PyObject*> managed.abi.manager_ctx)
    free(managed)
    return owner


cdef bint managed_take_view(Managed* managed, Py_buffer* into) noexcept nogil:
    """Move the Py_buffer that a block owns, exporter and all, and free the block; False, and it stays."""
    if load(&managed.references) != 1 or exporter(managed.abi.manager_ctx) == NULL:
        return False
    move_buffer(into, <Py_buffer*> managed.abi.manager_ctx)
    free(managed)
    return True


cdef Release[OWNER_KINDS] RELEASES
RELEASES[<int> OWNS_NOTHING] = NULL
RELEASES[<int> OWNS_OBJECT] = release_object
RELEASES[<int> OWNS_BUFFER] = release_buffer
RELEASES[<int> OWNS_MEMORY] = free
RELEASES[<int> OWNS_BASE] = release_base
RELEASES[<int> OWNS_VERSIONED] = release_versioned
RELEASES[<int> OWNS_LEGACY] = release_legacy
RELEASES[<int> OWNS_WRAPPED] = release_wrapped


cdef void release_owner(uint8_t owns, void* owner) noexcept nogil:
    if owns != OWNS_NOTHING:
        RELEASES[owns](owner)


cdef void release_wrapped(void* owner) noexcept nogil:
    (<Wrapped*> owner).release(owner)


ctypedef struct Kept:
    Wrapped wrapped             # first, as ever: the owner that forgets
    PyObject* object            # what it forgets


cdef int managed_keep(Managed* managed, object obj) except -1:
    cdef Kept* kept = <Kept*> malloc(sizeof(Kept))
    if kept == NULL:
        managed_release(managed)
        raise MemoryError
    kept.wrapped.release = release_kept
    kept.wrapped.owns, kept.wrapped.owner = managed.owns, managed.abi.manager_ctx
    Py_INCREF(obj)
    kept.object = <PyObject*> obj
    managed_own(managed, OWNS_WRAPPED, kept)
    return 0


cdef void release_kept(void* owner) noexcept nogil:
    cdef Kept* kept = <Kept*> owner
    release_owner(kept.wrapped.owns, kept.wrapped.owner)
    release_object(kept.object)
    free(kept)


cdef bint python_is_up() noexcept nogil:
    return python_runs()


cdef void release_object(void* owner) noexcept nogil:
    drop_with_gil(owner, drop_object)


cdef void release_buffer(void* owner) noexcept nogil:
    drop_with_gil(owner, drop_buffer)


cdef void release_base(void* owner) noexcept nogil:
    managed_forget(<Managed*> owner)


cdef void release_versioned(void* owner) noexcept nogil:
    release_foreign(owner, drop_versioned)


cdef void release_legacy(void* owner) noexcept nogil:
    release_foreign(owner, drop_legacy)


cdef void release_foreign(void* owner, Release drop) noexcept nogil:
    """A foreign deleter takes the GIL if it needs it; but in a thread of Python's an exception may be on its way.

    torch lets the GIL go before it calls a deleter, so holding it is no sign.
    """
    if (python_runs() and PyGILState_GetThisThreadState() != NULL) or holds_gil():
        drop_with_gil(owner, drop)
    else:
        drop(owner)


cdef void drop_with_gil(void* owner, Release drop) noexcept nogil:
    """Once Python is going down, only the thread that does so drops anything; for others it is leaked."""
    cdef PyGILState_STATE state
    if python_runs():
        state = PyGILState_Ensure()
        drop_keeping_error(owner, drop)
        PyGILState_Release(state)
    elif holds_gil():
        drop_keeping_error(owner, drop)


cdef void drop_keeping_error(void* owner, Release drop) noexcept nogil:
    """Run somebody's destructor without losing an exception that is on its way (python_spec of DLPack)."""
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* traceback
    if PyErr_Occurred() == NULL:
        drop(owner)
    else:
        PyErr_Fetch(&kind, &value, &traceback)
        drop(owner)
        PyErr_Restore(kind, value, traceback)


# The GIL is held in these two: the declarations of Python.h above do not ask for it.
cdef void drop_object(void* owner) noexcept nogil:
    Py_DECREF(<PyObject*> owner)


cdef void drop_buffer(void* owner) noexcept nogil:
    PyBuffer_Release(<Py_buffer*> owner)


cdef void drop_versioned(void* owner) noexcept nogil:
    cdef DLManagedTensorVersioned* foreign = <DLManagedTensorVersioned*> owner
    if foreign.deleter != NULL:
        foreign.deleter(foreign)


cdef void drop_legacy(void* owner) noexcept nogil:
    cdef DLManagedTensor* foreign = <DLManagedTensor*> owner
    if foreign.deleter != NULL:
        foreign.deleter(foreign)


cdef void managed_forget(Managed* managed) noexcept nogil:
    """Drop a reference; the last one frees the block, and lets the owner go where nobody has yet."""
    cdef uint8_t owns
    # Nobody can add to the only reference but who holds it, so that case needs no atomic step, which costs 5 ns.
    if load(&managed.references) == 1 or add(&managed.references, -1) == 0:
        owns = managed.owns
        if owns == OWNS_NOTHING:
            free(managed)
        else:
            managed.owns = OWNS_NOTHING
            managed.references = 1      # release_soon()'s own
            release_soon(managed, RELEASES[owns])


cdef void managed_release(Managed* managed) noexcept nogil:
    """Let the owner go now, whoever still refers to the block, and drop a reference. What a deleter does."""
    cdef uint8_t owns = OWNS_NOTHING
    if load(&managed.references) != 1:
        owns = exchange_byte(&managed.owns, OWNS_NOTHING)
    if owns == OWNS_NOTHING:
        managed_forget(managed)
    else:
        release_soon(managed, RELEASES[owns])


# Of a block whose release waits: in place of its description, which nobody reads any more.
ctypedef struct Waiting:
    Managed* next
    Release release


cdef inline Waiting* waiting_of(Managed* managed) noexcept nogil:
    return <Waiting*> &managed.abi.dl_tensor


cdef void release_soon(Managed* managed, Release release) noexcept nogil:
    """Let the owner go, which may let go another one, and so on: chains of any length need no more stack than DEEPEST.

    Memory that went to and fro between libraries is such a chain. Deeper owners wait for the outermost release, which
    runs them before it returns. Takes over a reference.
    """
    cdef Releases* here = releases_here()
    cdef Managed* first
    if here.depth == DEEPEST:
        waiting_of(managed).next = <Managed*> here.waiting
        waiting_of(managed).release = release
        here.waiting = managed
        return
    release_and_forget(managed, release, here)
    while here.depth == 0 and here.waiting != NULL:
        first = <Managed*> here.waiting
        here.waiting = waiting_of(first).next
        release_and_forget(first, waiting_of(first).release, here)


cdef void release_and_forget(Managed* managed, Release release, Releases* here) noexcept nogil:
    here.depth += 1
    release(managed.abi.manager_ctx)
    here.depth -= 1
    managed_forget(managed)


cdef void sole_deleter(DLManagedTensorVersioned* tensor) noexcept nogil:
    cdef Managed* managed = <Managed*> tensor
    if load(&managed.references) != 1 or not released_early(managed):
        managed_release(managed)


cdef bint released_early(Managed* managed) noexcept nogil:
    """Drop one of several references to the owner and free the block; False, and nothing done, if it is the last.

    The owner goes on living: nothing nests, however long the chain is that it belongs to.
    """
    cdef PyGILState_STATE state
    cdef PyObject* owner = NULL
    cdef bint early
    if managed.owns == OWNS_OBJECT:
        owner = <PyObject*> managed.abi.manager_ctx
    elif managed.owns == OWNS_BUFFER:
        owner = exporter(managed.abi.manager_ctx)
    if owner == NULL or not python_runs():
        return False
    state = PyGILState_Ensure()
    early = others_hold(owner)
    if early:
        if managed.owns == OWNS_OBJECT:
            Py_DECREF(owner)
        else:
            drop_keeping_error(managed.abi.manager_ctx, drop_buffer)
        free(managed)
    PyGILState_Release(state)
    return early


cdef DLManagedTensor* managed_as_legacy(Managed* managed) noexcept nogil:
    """Give the block over to a legacy consumer: from here on nothing but its deleter may touch it.

    A legacy tensor takes the place of the end of abi, so that the owner, which stands before it, stays where it is.
    """
    cdef DLManagedTensor* legacy = <DLManagedTensor*> (<char*> (&managed.abi + 1) - sizeof(DLManagedTensor))
    memmove(&legacy.dl_tensor, &managed.abi.dl_tensor, sizeof(DLTensor))
    legacy.manager_ctx = managed
    legacy.deleter = legacy_deleter
    return legacy


cdef void legacy_deleter(DLManagedTensor* tensor) noexcept nogil:
    managed_release(<Managed*> tensor.manager_ctx)


cdef void lent_deleter(DLManagedTensorVersioned* tensor) noexcept nogil:
    cdef Managed* managed = <Managed*> tensor
    if load(&managed.references) != 1 or not released_early(managed):
        managed_forget(managed)


# ---- read ----------------------------------------------------------------------------------------------------------

cdef int64_t managed_nbytes(const Managed* managed) noexcept nogil:
    """The bytes of the elements alone; packed elements round up once, in total."""
    cdef int64_t count = managed_count(managed)
    if managed_packed(managed):
        return (count * managed.abi.dl_tensor.dtype.bits + 7) // 8
    return count * get_row(managed.row).item_bytes


cdef Span managed_span(const Managed* managed) noexcept nogil:
    """The bytes that the elements touch; packed ones are compact."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int64_t item_bytes = get_row(managed.row).item_bytes
    cdef Span span
    if managed_packed(managed):
        span.low_bytes, span.high_bytes = 0, managed_nbytes(managed)
        return span
    return span_of(
        tensor.ndim, tensor.shape, tensor.strides, 1 if managed.marks & BYTE_STRIDES else item_bytes, item_bytes)


cdef str protocol_name(Protocol protocol):
    return PROTOCOL_NAMES[<int> protocol]


cdef object managed_owner(Managed* managed):
    """The object that the memory is kept alive by, or None."""
    cdef uint8_t owns = managed.owns
    cdef void* owner = managed.abi.manager_ctx
    if owns == OWNS_WRAPPED:
        owns, owner = (<Wrapped*> owner).owns, (<Wrapped*> owner).owner
    if owns == OWNS_OBJECT:
        # With an interface goes what it was read from, which is nobody's to let go.
        kept = <object> owner
        while type(kept) is tuple:
            kept = kept[0]
        return kept
    if owns == OWNS_BUFFER:
        return <object> exporter(owner) if exporter(owner) != NULL else None
    return managed_owner(<Managed*> owner) if owns == OWNS_BASE else None


cdef tuple managed_shape(const Managed* managed):
    return integers(managed.abi.dl_tensor.shape, managed.abi.dl_tensor.ndim, 1)


cdef tuple managed_strides(const Managed* managed):
    return integers(managed.abi.dl_tensor.strides, managed.abi.dl_tensor.ndim, 1)


cdef tuple integers(const int64_t* values, int32_t count, int64_t factor):
    """Not by a list comprehension: where there is no memory for the list, Cython 3.3 lets an item of it go twice."""
    cdef tuple made = PyTuple_New(count)
    cdef object value           # left to itself, it would be an int64
    cdef int32_t index
    for index in range(count):
        value = values[index] * factor
        Py_INCREF(value)        # SET_ITEM steals it
        PyTuple_SET_ITEM(made, index, value)
    return made
