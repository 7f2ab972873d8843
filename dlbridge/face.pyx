"""The C API: ``include/dlbridge.h`` for C and C++, ``__init__.pxd`` for Cython, the table behind both.

``view`` looks at an array. An array that is what the caller wants is not even acquired: its source describes it
(``describe``). All others are acquired as by asdlpack(), and copied if the caller allows that and it helps.
"""

from cpython.object cimport PyObject, PyTypeObject
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, STREAM_LEGACY_DEFAULT, DLDataType,
    DLManagedTensorVersioned, DLTensor, kDLCPU, kDLComplex, kDLFloat,
)
from dlbridge._core.block cimport (
    BYTE_STRIDES, CONJUGATED, KNOWN_FLAGS, NEGATED, OWNS_OBJECT, OWNS_WRAPPED, PROTOCOL_DLBRIDGE, PROTOCOL_DLPACK,
    SWAPPED, Managed, Owns, Release, Wrapped, managed_checked, managed_count, managed_from_tensor, managed_own,
    managed_own_storage, managed_release, managed_shape, managed_strides, managed_take_versioned, new_called,
    sole_deleter,
)
from dlbridge._core.cache cimport OFFERS, cached, steal
from dlbridge._core.conversion cimport deliver_to
from dlbridge._core.copies cimport is_watched, note_copy
from dlbridge._core.decision cimport (
    AXIS_ORDER, DEVICE_MEMORY, HOLES, OTHER_DEVICE, ZERO_STRIDE, Decision, Findings, decide, is_copy,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host
from dlbridge._core.dtypes cimport MAX_ROWS, NO_ROW, dtype_name, get_row
from dlbridge._core.layout cimport MAX_NDIM, REPEATED, STRIDED
from dlbridge._core.pending cimport take_error
from dlbridge._core.plan cimport contiguous_hint, fact_of, gather
from dlbridge._core.request cimport COPY_IF_NEEDED, COPY_NEVER, NOTHING_ASKED, READONLY_ERROR, Request
from dlbridge._core.sources.offer cimport Offer
from dlbridge._core.sources.registry cimport Offers, acquire_by, offers_for_type
from dlbridge._core.steps cimport taken
from dlbridge._core.target cimport (
    ANY_ORDER, ANY_STRIDES, GAPS, HOST, LENGTH_1_STRIDES, NEGATIVE_STRIDES, OTHER_DEVICES, PINNED, READ_ONLY, SHARING,
    UNIFIED, WRITABLE, ZERO_STRIDES, Target,
)
from dlbridge._core.view cimport (
    WANT_ANY_DEVICE, WANT_C_ORDER, WANT_DETACHED, WANT_FLAGS, WANT_OR_COPY, WANT_WRITABLE, View, Want,
)
from dlbridge.tensor cimport Tensor, new_like

import dlbridge
from dlbridge.errors import ConversionError, CopyRequiredError, DeviceError, DLBridgeError, refusal

cdef extern from "Python.h":
    PyObject* PyErr_Occurred() noexcept
    PyTypeObject* Py_TYPE(PyObject* obj) noexcept
    void Py_DECREF(PyObject* obj) noexcept

cdef enum:
    LARGEST_ALIGNMENT = 16      # of any dtype
    LAZY = NEGATED | CONJUGATED
    NOT_SHOWN = SWAPPED | BYTE_STRIDES | LAZY     # marks that a View cannot show

cdef list wanted = [None] * (WANT_FLAGS + 1)         # by WantFlags: what wanted_by() found

cdef Want NOTHING_WANTED
memset(&NOTHING_WANTED, 0, sizeof(Want))
NOTHING_WANTED.size = sizeof(Want)


# ---- the four functions ----------------------------------------------------------------------------------------------

cdef int view(object obj, const Want* want, View* out) except -1:
    cdef Want whole
    out.owner = NULL            # the caller may release it whatever comes of this
    if <PyObject*> obj == NULL:
        refuse_null("view", "obj")
    if want == NULL:
        want = &NOTHING_WANTED
    elif want.size != sizeof(Want) or want.flags & ~<uint32_t> WANT_FLAGS or is_contrary(want) or want.dtype_count:
        want = checked_want(want, &whole)
    # Nothing is caught here, since a try costs more than the rest where an array is only looked at.
    if (<Look> look)(obj, want, out):
        raise in_words_of(take_error(), want)


cdef DLManagedTensorVersioned* acquire(object obj, const Want* want) except NULL:
    cdef Managed* managed
    cdef Want whole
    if <PyObject*> obj == NULL:
        refuse_null("acquire", "obj")
    if want == NULL:
        want = &NOTHING_WANTED
    want = checked_want(want, &whole)
    managed = (<Bring> bring)(obj, offers_for_type(type(obj)), want)
    if managed == NULL:
        raise in_words_of(take_error(), want)
    managed_own_storage(managed)
    return &managed.abi


cdef object deliver(DLManagedTensorVersioned* tensor, object to):
    cdef Managed* managed
    if tensor == NULL:
        refuse_null("deliver", "tensor")
    if tensor.deleter == sole_deleter:
        managed = checked_again(<Managed*> tensor)
    else:
        managed = on_default_stream(managed_take_versioned(PROTOCOL_DLPACK, tensor))
    if <PyObject*> to == NULL:
        managed_release(managed)
        refuse_null("deliver", "to")
    try:
        return deliver_to(managed, to, "numpy")
    except DLBridgeError as error:
        if error.stage != "convert":
            raise
        raise refused_by(error, "deliver", error.wrong,
                         callers_hint(error.hint) or "pass the name of a library, or an array of it") from None


cdef Managed* checked_again(Managed* managed) except NULL:
    """Check a block of dlbridge's own, since the caller could have changed what lies open in the struct.

    On failure the block is released.
    """
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    if not 0 <= tensor.ndim <= MAX_NDIM or tensor.shape != <int64_t*> (managed + 1) or (
            tensor.strides != tensor.shape + tensor.ndim):
        managed_release(managed)
        raise ValueError("deliver: tensor: has other axes than it was made with (make another one)")
    managed.row = NO_ROW
    return managed_checked(managed)


cdef DLManagedTensorVersioned* make(const DLTensor* like, uint64_t flags, void* owner, Release drop) except NULL:
    cdef Managed* managed
    cdef Wrapped* called
    if like == NULL:
        refuse_null("make", "like")
    if flags & ~<uint64_t> KNOWN_FLAGS:
        raise ValueError(f"make: flags {flags:#x}: are not all known (pass flags of DLPack 1.3)")
    if not like.device.device_type:
        raise ValueError("make: device type 0: is none (set like.device.device_type to kDLCPU)")
    try:
        if like.data == NULL and owner == NULL and drop == NULL:
            managed = new_like(like, flags)
            managed.abi.flags |= flags & (DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED)
            return &managed.abi
        managed = managed_from_tensor(PROTOCOL_DLBRIDGE, like, flags)
    except DLBridgeError as error:
        raise refused_by(error, "make", error.wrong, error.hint) from None
    managed = on_default_stream(managed)
    if drop != NULL:
        called = new_called(owner, drop)
        if called == NULL:
            managed_release(managed)
            raise MemoryError
        own(managed, OWNS_WRAPPED, called)
    elif owner != NULL:
        Py_INCREF(<object> owner)
        own(managed, OWNS_OBJECT, owner)
    return &managed.abi


cdef int refuse_null(str function, str name) except -1:
    """Refuse NULL, which mostly is the result of a call that failed. The exception of that call is left as it is."""
    if PyErr_Occurred() != NULL:
        return -1
    raise ValueError(f"{function}: {name} NULL: is none (pass what the call before it returned)")


cdef void own(Managed* managed, Owns owns, void* owner) noexcept:
    """Take over an owner. Of device memory, the note of its stream is wrapped around the owner."""
    cdef Wrapped* wrapped = <Wrapped*> managed.abi.manager_ctx
    if managed.owns == OWNS_WRAPPED:
        wrapped.owns, wrapped.owner = owns, owner
    else:
        managed_own(managed, owns, owner)


cdef Managed* on_default_stream(Managed* managed) except NULL:
    """Note that device memory is ready on the legacy default stream; on failure the block is released."""
    if has_streams(managed.abi.dl_tensor.device.device_type):
        try:
            device_operations().set_producer(managed, STREAM_LEGACY_DEFAULT, None, True)
        except BaseException:
            managed_release(managed)
            raise
    return managed


# ---- what is wanted --------------------------------------------------------------------------------------------------

cdef inline bint is_contrary(const Want* want) noexcept nogil:
    """Whether writes would go to a copy, and be lost."""
    return want.flags & WANT_WRITABLE and want.flags & WANT_OR_COPY


cdef const Want* checked_want(const Want* want, Want* whole) except NULL:
    """Refuse a want that asks for what this version does not know, or makes no sense.

    Fields are added at the end. The want of a newer header is taken if all that is unknown is zero, and that of an
    older one, which is copied into ``whole``, has the fields that it lacks at zero.
    """
    cdef const char* bytes_of = <const char*> want
    cdef size_t least = <size_t> &whole.dtypes - <size_t> whole
    cdef uint32_t index
    if want.size < least:
        raise ValueError(f"want: size {want.size}: is less than {least} (set it by dlbridge_want())")
    if want.size < sizeof(Want):
        memset(whole, 0, sizeof(Want))
        memcpy(whole, want, want.size)
        whole.size = sizeof(Want)
        want = whole
    for index in range(sizeof(Want), want.size):
        if bytes_of[index]:
            raise ImportError("dlbridge: want: asks for what this version does not know (pip install -U dlbridge)")
    if want.flags & ~<uint32_t> WANT_FLAGS:
        raise ImportError(f"dlbridge: want: flags {want.flags:#x}: are not all known to this version "
                          "(pip install -U dlbridge)")
    if is_contrary(want):
        raise ValueError("want: flags WRITABLE | OR_COPY: would write to a copy, which nobody sees (pass one of them)")
    if want.dtype_count < 0 or want.dtype_count and want.dtypes == NULL:
        raise ValueError(f"want: dtype_count {want.dtype_count}: is not the number of dtypes (set both, or neither)")
    if want.dtype_count and want.dtype.bits:
        raise ValueError("want: dtypes: are wanted beside dtype (set one of them)")
    return want


cdef inline bint meets(const Managed* managed, const Want* want) noexcept nogil:
    """Whether memory is the host's, and what is wanted, as it is."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    if tensor.device.device_type != kDLCPU or managed.marks & NOT_SHOWN:
        return False
    if <size_t> tensor.data & LARGEST_ALIGNMENT - 1 and is_misaligned(managed):
        return False
    if want == &NOTHING_WANTED:
        return True
    if want.flags & WANT_WRITABLE and (
            managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY or managed.marks & REPEATED):
        return False
    if want.dtype.bits:
        if not same_dtype(want.dtype, tensor.dtype):
            return False
    elif want.dtype_count and not is_one_of(tensor.dtype, want):
        return False
    if (want.ndim or want.shape != NULL) and not has_extents(tensor, want):
        return False
    return not (want.flags & WANT_C_ORDER and managed.marks & STRIDED)


cdef inline bint has_extents(const DLTensor* tensor, const Want* want) noexcept nogil:
    cdef int32_t axis
    if want.ndim != tensor.ndim:
        return False
    for axis in range(tensor.ndim if want.shape != NULL else 0):
        if want.shape[axis] >= 0 and want.shape[axis] != tensor.shape[axis]:
            return False
    return True


cdef inline size_t alignment_of(DLDataType dtype) noexcept nogil:
    """The bytes to which an element, or each half of a complex one, is aligned."""
    cdef size_t item_bytes = dtype.bits >> (4 if dtype.code == kDLComplex else 3)
    return item_bytes if item_bytes else 1


cdef inline bint is_misaligned(const Managed* managed) noexcept nogil:
    return <size_t> managed.abi.dl_tensor.data & alignment_of(managed.abi.dl_tensor.dtype) - 1 and (
        managed_count(managed) != 0)


cdef bint is_one_of(DLDataType dtype, const Want* want) noexcept nogil:
    cdef int64_t index
    for index in range(want.dtype_count):
        if same_dtype(want.dtypes[index], dtype):
            return True
    return False


cdef inline bint same_dtype(DLDataType first, DLDataType second) noexcept nogil:
    return first.bits == second.bits and first.code == second.code and first.lanes == second.lanes


# ---- look, or acquire ------------------------------------------------------------------------------------------------

# The types of look() and bring() for a caller that takes the exception itself.
ctypedef int (*Look)(object obj, const Want* want, View* out) noexcept
ctypedef Managed* (*Bring)(object obj, tuple offers, const Want* want) noexcept


cdef int look(object obj, const Want* want, View* out) except -1:
    """Fill in the view of an array that keeps its memory by itself, or acquire the array."""
    cdef PyObject* entry = NULL
    cdef PyObject* offer
    cdef tuple offers
    cdef Managed* managed
    if Py_TYPE(<PyObject*> obj) == <PyTypeObject*> Tensor:
        if meets((<Tensor> obj).managed, want):
            show((<Tensor> obj).managed, out)       # whose shape and strides live as long as the Tensor
            return 0
    else:
        entry = cached(OFFERS, <PyObject*> obj, <PyObject*> None)
        if entry != NULL:
            offer = PyTuple_GET_ITEM((<Offers> entry).offers, 0)    # a registered source comes first
            if (<Offer> offer).describe != NULL and (<Offer> offer).describe(
                    obj, <Offer> offer, &out.memory, out.room) and meets(&out.memory, want):
                Py_DECREF(entry)
                return 0
    offers = (<Offers> steal(entry)).offers if entry != NULL else offers_for_type(type(obj))
    managed = bring(obj, offers, want)
    show(managed, out)
    out.owner = &managed.abi


cdef inline void show(const Managed* managed, View* out) noexcept nogil:
    out.memory.abi.dl_tensor = managed.abi.dl_tensor
    out.memory.abi.flags = managed.abi.flags


cdef Managed* bring(object obj, tuple offers, const Want* want) except NULL:
    """A block that is what is wanted; its owner may still release its memory."""
    cdef Request asked
    cdef const Request* request = &NOTHING_ASKED
    cdef Managed* managed
    if want.flags & (WANT_DETACHED | WANT_WRITABLE) or want.stream:
        asked = NOTHING_ASKED
        asked.detach = want.flags & WANT_DETACHED
        if want.flags & WANT_WRITABLE:
            asked.copy = COPY_NEVER         # writes to a producer's copy would be lost
        asked.has_stream = want.stream != 0
        asked.stream = want.stream
        request = &asked
    managed = acquire_by(offers, obj, request)
    if meets(managed, want):
        return managed
    return fitted(managed, want, request, obj)


# What is written would be lost with a copy that nobody has.
cdef str MADE_ANEW = 'make y = dlbridge.convert(x, "numpy", copy=True), pass y, and go on with y'


cdef Managed* fitted(Managed* managed, const Want* want, const Request* request, object obj) except NULL:
    """The memory as it is wanted, copied where that helps and the caller allows it; managed is stolen."""
    cdef Request ordered = request[0]
    cdef Target target
    cdef Findings findings
    cdef Decision decision
    if not ordered.has_stream:
        # Without a stream the caller uses the legacy default one, for which other streams wait too.
        ordered.has_stream, ordered.stream = True, STREAM_LEGACY_DEFAULT
    # Memory of a device is taken as it is.
    on_host = is_host(managed.abi.dl_tensor.device.device_type)
    ordered.copy = COPY_IF_NEEDED if want.flags & WANT_OR_COPY and on_host else COPY_NEVER
    ordered.readonly = READONLY_ERROR
    try:
        check_kind(managed, want)
        # A copy would not help, so what else is wrong with the memory does not matter.
        if want.flags & WANT_WRITABLE and managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY:
            raise refused(want, "readonly", True, "is not wanted, since the memory is written",
                          MADE_ANEW if on_host else "pass a copy that is writable, and go on with that")
        target = wanted_by(want.flags)
        gather(managed, target, &ordered, None, &findings)
        decide(managed, target, &ordered, &findings, &decision)
        if decision.refused:
            raise refused_as(want, managed, target, &decision)
        if is_copy(&decision) and is_watched():
            field, fact, hint = fact_of(managed, target, &decision)
            note_copy(obj, managed, name_of(want), f"{field} {fact}", hint)
    except BaseException:
        managed_release(managed)
        raise
    return taken(managed, decision.steps, target, &ordered, &decision)


cdef Target wanted_by(uint32_t flags):
    """What a function wants of memory, as the target of a decision; found once for all functions that want it."""
    cdef Target target = wanted[flags]
    cdef int row
    if target is not None:
        return target
    target = Target.__new__(Target)
    target.name = target.called = ""
    target.most_axes = MAX_NDIM
    target.gpus = -1
    target.rows = target.plain_rows = ~<uint64_t> 0         # check_kind() looked at the dtype
    for row in range(MAX_ROWS):
        target.low_bits[row] = target.device_low_bits[row] = alignment_of(get_row(row).dlpack) - 1
    target.supports = HOST | SHARING | GAPS | NEGATIVE_STRIDES | LENGTH_1_STRIDES | WRITABLE
    if not flags & WANT_WRITABLE:
        target.supports |= READ_ONLY | ZERO_STRIDES
    if not flags & WANT_C_ORDER:
        target.supports |= ANY_STRIDES | ANY_ORDER
    if flags & WANT_ANY_DEVICE:
        target.supports |= OTHER_DEVICES | PINNED | UNIFIED
    wanted[flags] = target
    return target


# The words are for the user of the caller's function, who has none of the keywords of convert().

cdef object refused_as(const Want* want, const Managed* managed, Target target, const Decision* decision):
    """The error of a decision that refuses."""
    device = managed.abi.dl_tensor.device
    if decision.reason == DEVICE_MEMORY or decision.reason == OTHER_DEVICE:
        return refusal(DeviceError, name_of(want), "device", device_name(device), "is not the host, which is wanted",
                       'pass dlbridge.convert(x, "numpy", device="cpu")')
    if decision.reason == ZERO_STRIDE:
        return refused(want, "strides", managed_strides(managed), "repeat elements, and the memory is written",
                       contiguous_hint(managed, None))
    field, fact, hint = fact_of(managed, target, decision)
    if decision.reason == HOLES or decision.reason == AXIS_ORDER:
        fact = (f"{managed_strides(managed)} of shape {managed_shape(managed)} are not in C order, which is wanted")
    return refusal(CopyRequiredError, name_of(want), field, fact, "needs a copy, which is not made", hint)


cdef int check_kind(Managed* managed, const Want* want) except -1:
    """Check the dtype and the shape, which no copy helps."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int32_t axis
    cdef int64_t index
    if want.dtype.bits and not same_dtype(want.dtype, tensor.dtype):
        raise refused(want, "dtype", dtype_name(tensor.dtype), f"is not {dtype_name(want.dtype)}, which is wanted",
                      f"convert it to {dtype_name(want.dtype)} first")
    if want.dtype_count and not is_one_of(tensor.dtype, want):
        names = [dtype_name(want.dtypes[index]) for index in range(want.dtype_count)]
        raise refused(want, "dtype", dtype_name(tensor.dtype), f"is none of {', '.join(names)}, which are wanted",
                      f"convert it to {names[0]} first")
    if (want.ndim or want.shape != NULL) and want.ndim != tensor.ndim:
        raise refused(want, "shape", managed_shape(managed), f"has {tensor.ndim} axes where {want.ndim} are wanted",
                      "reshape it")
    for axis in range(tensor.ndim if want.shape != NULL else 0):
        if want.shape[axis] >= 0 and want.shape[axis] != tensor.shape[axis]:
            raise refused(want, "shape", managed_shape(managed),
                          f"is not {want.shape[axis]} along axis {axis}, which is wanted", "reshape or slice it")


cdef str name_of(const Want* want):
    return (<bytes> want.name).decode("utf-8", "replace") if want.name != NULL else "view"


cdef object refused(const Want* want, str field, object value, str wrong, str hint):
    return refusal(ConversionError, name_of(want), field, value, wrong, hint)


cdef object in_words_of(object error, const Want* want):
    """An error of dlbridge's as one of the function that the caller has named. A producer's own is left as it is."""
    cdef DLDataType dtype
    if want.name == NULL or not isinstance(error, DLBridgeError) or not error.stage or error.stage == name_of(want):
        return error
    if error.stage == "convert":            # its words are about the order of convert()'s arguments
        return refused_by(error, f"{name_of(want)}: source", "offers no array protocol", "pass an array")
    hint = callers_hint(error.hint) or "pass an array"
    # NumPy itself has the names of these types.
    dtype = want.dtypes[0] if want.dtype_count else want.dtype
    if hint == "pass numpy.asarray(x)" and dtype.bits >= 8 and dtype.lanes == 1 and dtype.code <= <int> kDLFloat:
        hint = f'pass numpy.asarray(x, "{dtype_name(dtype)}")'
    return refused_by(error, f"{name_of(want)}: {error.stage}", error.wrong, hint)


cdef object refused_by(object error, str stage, str wrong, str hint):
    made = refusal(type(error), stage, error.field, error.value, wrong, hint)
    made.__cause__ = error.__cause__
    return made


cdef str callers_hint(str hint):
    """What of a hint can be done by those who call neither convert() nor convert_tree(); or nothing."""
    cdef list ways = []
    for way in hint.split(", or "):
        if "dlbridge.convert" not in way and "detach=True" not in way and "copy=None" not in way:
            ways.append(way)
    hint = ", or ".join(ways)
    return f"pass {hint}" if hint.startswith("x.") else hint


# ---- the table -------------------------------------------------------------------------------------------------------

ctypedef struct Table:
    uint32_t major
    uint32_t minor
    const Table* older
    int (*view)(object, const Want*, View*) except -1
    DLManagedTensorVersioned* (*acquire)(object, const Want*) except NULL
    object (*deliver)(DLManagedTensorVersioned*, object)
    DLManagedTensorVersioned* (*make)(const DLTensor*, uint64_t, void*, Release) except NULL

cdef Table TABLE
TABLE.major, TABLE.minor = 1, 0
TABLE.older = NULL
TABLE.view = view
TABLE.acquire = acquire
TABLE.deliver = deliver
TABLE.make = make

_C_API = PyCapsule_New(&TABLE, "dlbridge._C_API", NULL)
dlbridge._C_API = _C_API        # the capsule's name is where PyCapsule_Import() looks for it
