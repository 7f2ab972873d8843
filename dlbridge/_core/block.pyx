"""The block: how it is made, checked, counted, and released exactly once. block.pxd explains its verbs."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLManagedTensor, DLManagedTensorVersioned, DLTensor, kDLCPU, kDLCUDA, kDLCUDAHost,
    kDLCUDAManaged, kDLOneAPI, kDLOpenCL, kDLROCM, kDLROCMHost, kDLTrn, kDLVulkan,
)
from dlbridge._core.atomic cimport ONE_AT_A_TIME, add, exchange_byte, load
from dlbridge._core.dtypes cimport NO_ROW, dtype_name, get_row
from dlbridge._core.layout cimport (
    BACKWARD, LARGEST_SPAN, LENGTH_1, NEGATIVE_EXTENT, REPEATED, SPAN_TOO_LARGE, STRIDED, TOO_MANY_ELEMENTS,
    LayoutFault, Span, fill_compact, settle, span_of,
)

from dlbridge.errors import REPORT, ConversionError, DeviceError, refusal


cdef extern from *:
    """
    typedef struct {
        int32_t depth;
        void *waiting;
    } dlbridge_Releases;
    static _Thread_local dlbridge_Releases dlbridge_releases;
    /* Without the register the compiler computes the address of the thread's variable again after every call. */
    static inline dlbridge_Releases *dlbridge_releases_here(void) {
        dlbridge_Releases *here = &dlbridge_releases;
        DLBRIDGE_KEEP_IN_REGISTER(here);
        return here;
    }
    """
    ctypedef struct Releases "dlbridge_Releases":
        int32_t depth                   # how deep releases are nested in this thread
        void* waiting                   # the blocks that wait for the outermost release
    Releases* releases_here "dlbridge_releases_here"() noexcept nogil

# These are declared without the GIL, because deleters are called without it and find out themselves whether they hold
# it.
cdef extern from "Python.h":
    void* PyGILState_GetThisThreadState() noexcept nogil
    PyObject* PyErr_Occurred() noexcept nogil
    void PyErr_Fetch(PyObject** kind, PyObject** value, PyObject** traceback) noexcept nogil
    void PyErr_Restore(PyObject* kind, PyObject* value, PyObject* traceback) noexcept nogil
    void PyErr_WriteUnraisable(PyObject* obj) noexcept nogil
    void PyBuffer_Release(Py_buffer* view) noexcept nogil
    void Py_DECREF(PyObject* obj) noexcept nogil

cdef enum:
    DEEPEST = 64                # how deep releases nest within releases
    FORM = BACKWARD | REPEATED | STRIDED | LENGTH_1

# The devices whose data is an address, to which an offset can be added. On the others it is a handle (OpenCL's cl_mem).
cdef uint32_t ADDRESSED = (
    1 << kDLCPU | 1 << kDLCUDA | 1 << kDLCUDAHost | 1 << kDLROCM | 1 << kDLROCMHost | 1 << kDLCUDAManaged
    | 1 << kDLOneAPI)

cdef dict PROTOCOL_NAMES = {
    PROTOCOL_NUMPY: "numpy",
    PROTOCOL_EXCHANGE_API: "exchange_api",
    PROTOCOL_DLPACK: "dlpack",
    PROTOCOL_DLPACK_LEGACY: "dlpack (legacy)",
    PROTOCOL_CUDA_ARRAY_INTERFACE: "cuda_array_interface",
    PROTOCOL_ARRAY_STRUCT: "array_struct",
    PROTOCOL_ARRAY_INTERFACE: "array_interface",
    PROTOCOL_ARROW: "arrow",
    PROTOCOL_BUFFER: "buffer",
    PROTOCOL_DLBRIDGE: "dlbridge",
}

main_interpreter = view_of_main()

releases[<int> OWNS_NOTHING] = NULL
releases[<int> OWNS_OBJECT] = release_object
releases[<int> NOT_YET_OWNED] = release_object
releases[<int> OWNS_BUFFER] = release_buffer
releases[<int> OWNS_MEMORY] = free
releases[<int> OWNS_BASE] = release_base
releases[<int> OWNS_VERSIONED] = release_versioned
releases[<int> OWNS_LEGACY] = release_legacy
releases[<int> OWNS_WRAPPED] = release_wrapped


# ---- make ----------------------------------------------------------------------------------------------------------

cdef Managed* managed_take_buffer(Protocol protocol, Py_buffer* view, int64_t ndim) except NULL:
    """A block that owns a filled Py_buffer and has room for ndim axes; on failure the Py_buffer is released."""
    cdef Managed* managed = new_block(ndim, sizeof(Py_buffer))
    if managed == NULL:
        PyBuffer_Release(view)
        return refuse_block(protocol, ndim)
    managed_begin(managed, protocol, <int32_t> ndim, room_of(managed))
    managed_own(managed, OWNS_BUFFER, managed.abi.dl_tensor.strides + ndim)
    move_buffer(<Py_buffer*> managed.abi.manager_ctx, view)
    return managed


cdef void move_buffer(Py_buffer* into, Py_buffer* view) noexcept nogil:
    """Move a Py_buffer. PyBuffer_FillInfo() lets shape and strides of plain bytes point into the Py_buffer itself."""
    into[0] = view[0]
    if view.shape == &view.len:
        into.shape = &into.len
    if view.strides == &view.itemsize:
        into.strides = &into.itemsize


cdef Managed* refuse_block(Protocol protocol, int64_t ndim) except NULL:
    if 0 <= ndim <= MAX_NDIM:
        raise MemoryError
    raise refusal(ConversionError, protocol_name(protocol), "ndim", ndim, "is outside 0..64", "reshape it")


cdef Managed* managed_like(const Managed* base) except NULL:
    """A new block with the same description, without an owner."""
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


cdef Managed* managed_new_view(Managed* base) except NULL:
    """A new block over the same memory, for one more consumer. It owns a reference to the first block."""
    cdef Managed* managed = managed_like(base)
    managed_own(managed, OWNS_BASE, managed_retain(base))
    return managed


cdef bint managed_alone(const Managed* managed) noexcept nogil:
    """Whether nothing but this block, and the Tensor that lent it, can reach the memory."""
    cdef const Managed* lent = lender(managed)
    if lent == NULL:
        return managed.owns == OWNS_MEMORY or managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED
    # Without the GIL another thread could take the memory from the Tensor meanwhile.
    return ONE_AT_A_TIME and load(&lent.references) <= 2 and (lent.owns == OWNS_MEMORY or owns_lone_bytes(lent))


cdef bint owns_lone_bytes(const Managed* managed) noexcept nogil:
    """Whether a block owns the buffer of bytes that no other code has, such as those of a pickle."""
    cdef PyObject* received = exporter(managed.abi.manager_ctx) if managed.owns == OWNS_BUFFER else NULL
    return received != NULL and is_bytes(received) and not others_hold(received)


cdef void managed_seal(Managed* managed) noexcept nogil:
    cdef Managed* lent = lender(managed)
    managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if lent != NULL:
        lent.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY


cdef inline Managed* lender(const Managed* managed) noexcept nogil:
    """The block of dlbridge's own that was lent to this one as a versioned tensor, or NULL."""
    cdef DLManagedTensorVersioned* foreign = <DLManagedTensorVersioned*> managed.abi.manager_ctx
    if managed.owns != OWNS_VERSIONED or foreign.deleter != lent_deleter:
        return NULL
    return <Managed*> foreign


cdef int managed_take_tuples(Managed* managed, tuple shape, tuple strides) except -1:
    """Take a layout of as many axes as the block has from Python; on failure the block is released."""
    cdef int32_t axis
    cdef int32_t ndim = managed.abi.dl_tensor.ndim
    try:
        if len(shape) != ndim or len(strides) != ndim:
            raise ValueError(f"shape {shape} and strides {strides} are not of {ndim} axes")
        for axis in range(ndim):
            managed.abi.dl_tensor.shape[axis], managed.abi.dl_tensor.strides[axis] = shape[axis], strides[axis]
    except BaseException:
        managed_release(managed)
        raise
    return 0


cdef void take_other_bytes(Managed* managed, const Py_ssize_t* shape, const Py_ssize_t* strides_bytes) noexcept nogil:
    """Take a layout that may be anything.

    Strides become elements if all of them are multiples of the item size. Otherwise they stay bytes, and the memory is
    marked.
    """
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    # Item sizes are powers of two. A division would cost ten times as much as a shift.
    cdef int shift = get_row(managed.row).item_shift
    cdef int64_t odd_bits = get_row(managed.row).item_bytes - 1
    cdef bint odd = False
    cdef int32_t axis
    if not tensor.ndim:
        return                  # shape and strides may both be NULL
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


# ---- own and release -------------------------------------------------------------------------------------------------

cdef object managed_unwrapped(Managed* managed):
    """Free the block and give the object that it owned; or give None, and the block stays.

    This is for a consumer that keeps a reference to the object itself. The block stays if it has another kind of owner
    or more references, or if its memory is read-only, because the object might give the memory out as writable.
    """
    if managed.owns != OWNS_OBJECT or load(&managed.references) != 1 or (
            managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY):
        return None
    owner = <object> managed.abi.manager_ctx
    Py_DECREF(<PyObject*> managed.abi.manager_ctx)
    free(managed)
    return owner


cdef bint managed_move_buffer(Managed* managed, Py_buffer* into) noexcept nogil:
    """Move the Py_buffer that a block owns, with its exporter, and free the block. False if the block stays."""
    if load(&managed.references) != 1 or exporter(managed.abi.manager_ctx) == NULL:
        return False
    move_buffer(into, <Py_buffer*> managed.abi.manager_ctx)
    free(managed)
    return True


cdef Managed* managed_new_over(Managed* base, Protocol protocol, int32_t ndim) except NULL:
    """A block without a layout, over the memory of a block that it owns; base is stolen, also on failure."""
    cdef Managed* managed
    try:
        managed = managed_new(protocol, ndim)
    except BaseException:
        managed_release(base)
        raise
    managed.abi.dl_tensor.data = base.abi.dl_tensor.data
    managed.abi.dl_tensor.byte_offset = base.abi.dl_tensor.byte_offset
    managed.abi.dl_tensor.device = base.abi.dl_tensor.device
    managed_own(managed, OWNS_BASE, base)
    return managed


cdef void release_base(void* owner) noexcept nogil:
    managed_drop(<Managed*> owner)


cdef int own_storage(Managed* managed) except -1:
    cdef PyObject* tensor = <PyObject*> managed.abi.manager_ctx
    try:
        keeper = find_storage(<object> tensor)
    except BaseException:
        managed_release(managed)
        raise
    managed_own_object(managed, keeper)
    Py_DECREF(tensor)


cdef int managed_keep(Managed* managed, object obj) except -1:
    keep(managed, obj, False)


cdef int managed_keep_export(Managed* managed, object export) except -1:
    keep(managed, export, True)


cdef int keep(Managed* managed, object obj, bint released_first) except -1:
    managed_own_storage(managed)
    cdef Wrapped* outer = <Wrapped*> managed.abi.manager_ctx if managed.owns == OWNS_WRAPPED else NULL
    cdef bint inside = outer != NULL and outer.owns != OWNS_NOTHING
    cdef Wrapped* kept = new_kept(outer.owns, outer.owner, obj, released_first) if inside else (
        new_kept(managed.owns, managed.abi.manager_ctx, obj, released_first))
    if kept == NULL:
        managed_release(managed)
        raise MemoryError
    if inside:          # what orders the release of the memory stays outside, and is found there
        outer.owns, outer.owner = OWNS_WRAPPED, kept
    else:
        managed_own(managed, OWNS_WRAPPED, kept)


cdef void managed_drop(Managed* managed) noexcept nogil:
    cdef uint8_t owns
    # Dropping the only reference needs no atomic step, which costs 5 ns: only its holder could add another.
    if load(&managed.references) == 1 or add(&managed.references, -1) == 0:
        owns = managed.owns
        if owns == OWNS_NOTHING:
            free(managed)
        else:
            managed.owns = OWNS_NOTHING
            managed.references = 1      # release_soon() takes it over
            release_soon(managed, releases[owns])


cdef void managed_release(Managed* managed) noexcept nogil:
    cdef uint8_t owns = OWNS_NOTHING
    if load(&managed.references) != 1:
        owns = exchange_byte(&managed.owns, OWNS_NOTHING)
    if owns == OWNS_NOTHING:
        managed_drop(managed)
    else:
        release_soon(managed, releases[owns])


# What is noted in a block whose release waits. It takes the place of the description, which is no longer read.
ctypedef struct DeferredRelease:
    Managed* next
    Release release


cdef inline DeferredRelease* deferred_in(Managed* managed) noexcept nogil:
    return <DeferredRelease*> &managed.abi.dl_tensor


cdef void release_soon(Managed* managed, Release release) noexcept nogil:
    """Release the owner, and take over one reference to the block.

    An owner may release another one, and so on: memory that went to and fro between libraries is such a chain. A chain
    of any length needs no more stack than DEEPEST releases. Deeper owners wait for the outermost release, which
    releases them before it returns.
    """
    cdef Releases* here = releases_here()
    cdef Managed* first
    if here.depth == DEEPEST:
        deferred_in(managed).next = <Managed*> here.waiting
        deferred_in(managed).release = release
        here.waiting = managed
        return
    release_and_drop(managed, release, here)
    while here.depth == 0 and here.waiting != NULL:
        first = <Managed*> here.waiting
        here.waiting = deferred_in(first).next
        release_and_drop(first, deferred_in(first).release, here)


cdef void release_and_drop(Managed* managed, Release release, Releases* here) noexcept nogil:
    here.depth += 1
    release(managed.abi.manager_ctx)
    here.depth -= 1
    managed_drop(managed)


cdef void sole_deleter(DLManagedTensorVersioned* tensor) noexcept nogil:
    cdef Managed* managed = <Managed*> tensor
    if load(&managed.references) != 1 or not released_early(managed):
        managed_release(managed)


cdef bint released_early(Managed* managed) noexcept nogil:
    """If other code holds the owner too, drop the block's reference to it, and free the block.

    Otherwise nothing is done, and the answer is False. The owner goes on living, so no release nests, however long the
    chain is that the owner belongs to.
    """
    cdef Attachment attachment
    cdef PyObject* owner = NULL
    cdef bint early
    if managed.owns == OWNS_OBJECT:
        owner = <PyObject*> managed.abi.manager_ctx
    elif managed.owns == OWNS_BUFFER:
        owner = exporter(managed.abi.manager_ctx)
    if owner == NULL or not attach(main_interpreter, &attachment):
        return False
    early = others_hold(owner)
    if early:
        if managed.owns == OWNS_OBJECT:
            Py_DECREF(owner)
        else:
            drop_keeping_error(managed.abi.manager_ctx, drop_buffer)
        free(managed)
    detach(attachment)
    return early


cdef DLManagedTensor* managed_as_legacy(Managed* managed) noexcept nogil:
    """Hand the block over to a legacy consumer. From here on only its deleter may touch it.

    The legacy tensor takes the place of the end of abi, so that the owner, which is before it, stays where it is.
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
        managed_drop(managed)


# ---- owners, by kind -------------------------------------------------------------------------------------------------

cdef void set_find_storage(FindStorage found) noexcept:
    global find_storage
    find_storage = found


cdef void release_owner(uint8_t owns, void* owner) noexcept nogil:
    if owns != OWNS_NOTHING:
        releases[owns](owner)


cdef void release_object(void* owner) noexcept nogil:
    drop_with_gil(owner, drop_object)


cdef void release_buffer(void* owner) noexcept nogil:
    drop_with_gil(owner, drop_buffer)


cdef void release_versioned(void* owner) noexcept nogil:
    release_foreign(owner, drop_versioned)


cdef void release_legacy(void* owner) noexcept nogil:
    release_foreign(owner, drop_legacy)


cdef void release_wrapped(void* owner) noexcept nogil:
    (<Wrapped*> owner).release(owner)


# The caller of these two holds the GIL, although the declarations of Python.h above do not ask for it.
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


# ---- an object beside the owner ------------------------------------------------------------------------------------

ctypedef struct Kept:
    Wrapped wrapped             # first: release_wrapped() finds the struct by it
    PyObject* object
    bint released_first         # before the owner


cdef Wrapped* new_kept(uint8_t owns, void* owner, object obj, bint released_first) noexcept:
    cdef Kept* kept = <Kept*> malloc(sizeof(Kept))
    if kept == NULL:
        return NULL
    kept.wrapped.release = release_kept
    kept.wrapped.owns, kept.wrapped.owner = owns, owner
    Py_INCREF(obj)
    kept.object = <PyObject*> obj
    kept.released_first = released_first
    return &kept.wrapped


cdef PyObject* kept_object(void* owner) noexcept nogil:
    return (<Kept*> owner).object if (<Wrapped*> owner).release == release_kept else NULL


cdef void release_kept(void* owner) noexcept nogil:
    cdef Kept* kept = <Kept*> owner
    if kept.released_first:
        release_object(kept.object)
    release_owner(kept.wrapped.owns, kept.wrapped.owner)
    if not kept.released_first:
        release_object(kept.object)
    free(kept)


# ---- an owner that other code releases -------------------------------------------------------------------------------

ctypedef struct Called:
    Wrapped wrapped             # first, as in Kept
    Release drop


cdef Wrapped* new_called(void* owner, Release drop) noexcept nogil:
    cdef Called* called = <Called*> malloc(sizeof(Called))
    if called == NULL:
        return NULL
    called.wrapped.release = release_called
    called.wrapped.owns, called.wrapped.owner = OWNS_NOTHING, owner
    called.drop = drop
    return &called.wrapped


cdef void release_called(void* owner) noexcept nogil:
    cdef Called* called = <Called*> owner
    release_foreign(called.wrapped.owner, called.drop)
    free(called)


# ---- the GIL, and a pending exception --------------------------------------------------------------------------------

cdef void release_foreign(void* owner, Release drop) noexcept nogil:
    """Run a foreign deleter, which takes the GIL itself, with a pending exception of this thread put aside.

    The test is whether the thread has a state of Python. torch gives the GIL up before it calls a deleter, so a thread
    without the GIL can have a pending exception too.
    """
    if (python_runs() and PyGILState_GetThisThreadState() != NULL) or holds_gil():
        drop_with_gil(owner, drop)
    else:
        drop(owner)


cdef void drop_with_gil(void* owner, Release drop) noexcept nogil:
    """Run a function with the GIL.

    Once Python is shutting down, only the thread that shuts it down drops an owner; other threads leak it.
    """
    cdef Attachment attachment
    if attach(main_interpreter, &attachment):
        drop_keeping_error(owner, drop)
        detach(attachment)
    elif holds_gil():
        drop_keeping_error(owner, drop)


cdef void drop_keeping_error(void* owner, Release drop) noexcept nogil:
    """Run a destructor without losing a pending exception (python_spec of DLPack).

    An exception that the destructor raises has no caller to go to, so Python reports it like one of ``__del__``.
    """
    cdef PyObject* kind = NULL
    cdef PyObject* value = NULL
    cdef PyObject* traceback = NULL
    if PyErr_Occurred() != NULL:
        PyErr_Fetch(&kind, &value, &traceback)
    drop(owner)
    if PyErr_Occurred() != NULL:
        PyErr_WriteUnraisable(NULL)
    if kind != NULL:
        PyErr_Restore(kind, value, traceback)


# ---- read ----------------------------------------------------------------------------------------------------------

cdef int64_t managed_nbytes(const Managed* managed) noexcept nogil:
    """The bytes of the elements, without gaps. The bits of packed elements are rounded up once, in total."""
    cdef int64_t count = managed_count(managed)
    if managed_packed(managed):
        return (count * managed.abi.dl_tensor.dtype.bits + 7) // 8
    return count * get_row(managed.row).item_bytes


cdef Span managed_span(const Managed* managed) noexcept nogil:
    """The bytes that the elements touch. Packed elements are always compact."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int64_t item_bytes = get_row(managed.row).item_bytes
    cdef Span span
    if managed_packed(managed):
        span.low_bytes, span.high_bytes = 0, managed_nbytes(managed)
        return span
    return span_of(
        tensor.ndim, tensor.shape, tensor.strides, 1 if managed.marks & BYTE_STRIDES else item_bytes, item_bytes)


cdef str protocol_name(Protocol protocol):
    return PROTOCOL_NAMES[protocol]


cdef object managed_owner(Managed* managed):
    """The object that keeps the memory alive, or None."""
    cdef uint8_t owns = managed.owns
    cdef void* owner = managed.abi.manager_ctx
    # A loop, since memory that went to and fro between Tensors is a chain of any length.
    while owns == OWNS_WRAPPED or owns == OWNS_BASE:
        if owns == OWNS_WRAPPED:
            owns, owner = (<Wrapped*> owner).owns, (<Wrapped*> owner).owner
        else:
            owns, owner = (<Managed*> owner).owns, (<Managed*> owner).abi.manager_ctx
    if owns == OWNS_OBJECT or owns == NOT_YET_OWNED:
        # The owner of an interface's memory is a tuple: the array, and then what the interface was read from.
        kept = <object> owner
        while type(kept) is tuple:
            kept = kept[0]
        return kept
    if owns == OWNS_BUFFER:
        return <object> exporter(owner) if exporter(owner) != NULL else None
    return None


cdef FindBlock find_block = NULL


cdef void set_find_block(FindBlock found) noexcept:
    global find_block
    find_block = found


cdef const Managed* block_of(object owner) noexcept:
    return find_block(owner) if find_block != NULL else NULL


cdef tuple managed_shape(const Managed* managed):
    return integers(managed.abi.dl_tensor.shape, managed.abi.dl_tensor.ndim, 1)


cdef tuple managed_strides(const Managed* managed):
    return integers(managed.abi.dl_tensor.strides, managed.abi.dl_tensor.ndim, 1)


cdef tuple integers(const int64_t* values, int32_t count, int64_t factor):
    """A tuple of integers, each multiplied by a factor.

    It is not made by a list comprehension: Cython 3.3 drops an item of the list twice if there is no memory for it.
    """
    cdef tuple made = PyTuple_New(count)
    cdef object value           # without the declaration it would be an int64
    cdef int32_t index
    for index in range(count):
        value = values[index] * factor
        Py_INCREF(value)        # SET_ITEM steals it
        PyTuple_SET_ITEM(made, index, value)
    return made


# ---- foreign structs -----------------------------------------------------------------------------------------------

cdef Managed* managed_from_tensor(Protocol protocol, const DLTensor* tensor, uint64_t flags) except NULL:
    """An unowned, validated block that describes a foreign DLTensor."""
    cdef Managed* managed = new_block(tensor.ndim, 0)
    cdef int fault
    if managed == NULL:
        return refuse_block(protocol, tensor.ndim)
    fault = managed_describe(managed, protocol, tensor, flags, room_of(managed))
    if fault:
        raise release_and_refuse(managed, fault)
    return managed


cdef Managed* managed_take_versioned(Protocol protocol, DLManagedTensorVersioned* foreign) except NULL:
    """A validated block that owns a foreign DLManagedTensorVersioned, which is released on failure."""
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
    managed_own(managed, OWNS_VERSIONED, foreign)
    return managed


# ---- the check ------------------------------------------------------------------------------------------------------

cdef Managed* managed_checked(Managed* managed) except NULL:
    """Validate a block, and derive its row and marks; on failure the block is released."""
    cdef int fault = managed_take_layout(managed, managed.abi.dl_tensor.shape, managed.abi.dl_tensor.strides)
    if fault:
        raise release_and_refuse(managed, fault)
    return managed


cdef enum Fault:                # the numbers go on after those of layout.LayoutFault
    UNKNOWN_DTYPE = 16
    NO_EXTENTS
    PACKED_WITH_GAPS
    NO_MEMORY
    UNKNOWN_DEVICE
    FAR_OFFSET
    BEYOND_ADDRESSES


cdef int find_fault(Managed* managed, const int64_t* shape, const int64_t* strides) noexcept nogil:
    cdef int64_t count = 0
    return dtype_fault(managed) or layout_fault(managed, shape, strides, &count) or memory_fault(managed, count)


cdef int dtype_fault(Managed* managed) noexcept nogil:
    if managed.row == NO_ROW:
        return UNKNOWN_DTYPE
    if managed.abi.dl_tensor.dtype.bits >= 8:
        managed.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED     # which means nothing here
    return 0


cdef int layout_fault(Managed* managed, const int64_t* shape, const int64_t* strides, int64_t* count) noexcept nogil:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef bint in_bytes = managed.marks & BYTE_STRIDES
    cdef bint packed = managed_packed(managed)
    # This is 1 for packed elements, whose strides are below a byte. They must be compact anyway.
    cdef int64_t item_bytes = get_row(managed.row).item_bytes
    cdef LayoutFault fault
    cdef uint32_t form
    managed.marks &= ~FORM
    if tensor.ndim:
        if shape == NULL:
            return NO_EXTENTS
        memmove(tensor.shape, shape, tensor.ndim * sizeof(int64_t))
        memmove(tensor.strides, strides, tensor.ndim * sizeof(int64_t))
    fault = settle(
        tensor.ndim, tensor.shape, tensor.strides, 1 if in_bytes else item_bytes, item_bytes, count, &form)
    if fault:
        return fault
    managed.marks |= form
    if packed:
        if count[0] > LARGEST_SPAN // tensor.dtype.bits:
            return TOO_MANY_ELEMENTS        # managed_nbytes() computes the number of bits first, which must fit
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
        # The offset is added to the address: nearly every producer leaves byte_offset at 0, and some consumers refuse
        # any other (cutlass#3450).
        tensor.data = managed_data(managed)
        tensor.byte_offset = 0
    if count and 1 << tensor.device.device_type & ADDRESSED and goes_around(managed):
        return BEYOND_ADDRESSES
    return 0


cdef bint goes_around(const Managed* managed) noexcept nogil:
    """Whether the touched bytes go around the end of the address space."""
    cdef Span span = managed_span(managed)
    cdef size_t begin = <size_t> managed_data(managed) + <size_t> span.low_bytes
    return begin > <size_t> managed_data(managed) or begin + <size_t> (span.high_bytes - span.low_bytes) - 1 < begin


cdef bint is_device(int32_t device_type) noexcept nogil:
    # C enums are unsigned, so a negative type would pass without the casts.
    return <int> kDLCPU <= device_type <= <int> kDLOpenCL or <int> kDLVulkan <= device_type <= <int> kDLTrn


# For each Fault: the error, its field, what is wrong, and the hint. Names in braces are filled in.
cdef dict FAULTS = {
    UNKNOWN_DTYPE: (ConversionError, "dtype", "is no type that dlbridge knows",
                    "view it as integers of the same size first"),
    NO_EXTENTS: (ConversionError, "shape", "has no extents for ndim {ndim}", REPORT),
    NEGATIVE_EXTENT: (ConversionError, "shape", "has a negative extent", REPORT),
    TOO_MANY_ELEMENTS: (ConversionError, "shape", "has more bytes than any memory", REPORT),
    SPAN_TOO_LARGE: (ConversionError, "strides", "of shape {shape} reach beyond any memory", REPORT),
    PACKED_WITH_GAPS: (ConversionError, "strides", "of packed {dtype} are not compact", "make it contiguous first"),
    NO_MEMORY: (ConversionError, "data", "has no memory for {count} elements",
                "materialise it first: fake, meta, functionalized and resized tensors have none"),
    UNKNOWN_DEVICE: (DeviceError, "device_type", "is no device of DLPack 1.3",
                     "update dlbridge, or move it to the CPU"),
    FAR_OFFSET: (ConversionError, "byte_offset", "is beyond any address", REPORT),
    BEYOND_ADDRESSES: (
        ConversionError, "data", "is so near to one end of all addresses that shape {shape} goes around it", REPORT),
}


cdef object release_and_refuse(Managed* managed, int fault):
    """Release the block, and give the error for a fault."""
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    try:
        error, field, wrong, hint = FAULTS[fault]
        values = {
            "dtype": dtype_name(tensor.dtype),
            "ndim": tensor.ndim,
            # Without a dtype, shape and strides were not yet taken.
            "shape": managed_shape(managed) if fault not in (NO_EXTENTS, UNKNOWN_DTYPE) else "NULL",
            "strides": managed_strides(managed) if fault not in (NO_EXTENTS, UNKNOWN_DTYPE) else None,
            # With other faults the count may not fit into 64 bits.
            "count": managed_count(managed) if fault == NO_MEMORY else None,
            "data": "NULL" if tensor.data == NULL else f"{<size_t> tensor.data:#x}",
            "device_type": tensor.device.device_type,
            "byte_offset": tensor.byte_offset,
        }
        return refusal(error, protocol_name(<Protocol> managed.protocol), field, values[field], wrong.format(**values),
                       hint)
    finally:
        managed_release(managed)
