"""Arrow's C interfaces: ``__arrow_c_device_array__``, ``__arrow_c_array__``, and a stream of one chunk.

Only arrays of numbers without nulls are taken. Arrow's memory is immutable, so it is read-only here.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, kDLCPU
from dlbridge._core.atomic cimport load_pointer, replace_pointer
from dlbridge._core.block cimport (
    PROTOCOL_ARROW,
    Managed,
    managed_new,
    managed_own,
    managed_own_object,
    managed_release,
    managed_set_layout,
    managed_set_row,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host
from dlbridge._core.dtypes cimport find_arrow, get_row
from dlbridge._core.layout cimport add_overflows, multiply_overflows
from dlbridge._core.ownership cimport OWNS_NOTHING, OWNS_WRAPPED, Wrapped, release_foreign
from dlbridge._core.pending cimport raise_pending
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer, new_offer
from dlbridge._core.validation cimport managed_checked

from dlbridge.errors import REPORT, ConversionError, refusal

# CDataInterface, "format strings": what is wrong with a format that has no DLPack type, and the way out, by how the
# format begins. The first line that fits counts.
WAYS_OUT = {
    "b": ("has eight bools in a byte", "cast it to uint8, then view the result as bool"),
    "n": ("has nothing but nulls", "there is nothing to convert"),
    "td": ("are dates", "cast it to int32 or int64"),
    "tt": ("are times of the day", "cast it to int32 or int64"),
    "ts": ("are points in time", "cast it to int64"),
    "tD": ("are durations", "cast it to int64"),
    "d": ("are decimals", "cast it to float64"),
    "+s": ("has columns", "pass its columns one by one"),
    "+w": ("are lists of one length", "pass x.flatten(), and reshape the result"),
    "+": ("are nested", "pass x.flatten(), or the parts one by one"),
    "u": ("are strings", "no array library has them"),
    "U": ("are strings", "no array library has them"),
    "v": ("are strings, or bytes", "no array library has them"),
    "z": ("are bytes of any length", "no array library has them"),
    "Z": ("are bytes of any length", "no array library has them"),
    "": ("has no DLPack type", "cast it to a type of numbers"),
}


cdef extern from *:
    int popcount "__builtin_popcount"(unsigned int bits) noexcept nogil


# An array that was moved out of its capsule. It is held for as long as its memory is in use.
ctypedef struct Held:
    Wrapped wrapped             # first: release_wrapped() finds the struct by it. It has no owner of its own
    ArrowArray array


ctypedef void (*ReleaseArray)(ArrowArray*) noexcept nogil
ctypedef void (*ReleaseStream)(ArrowArrayStream*) noexcept nogil


cdef Offer offers(object kind, object facts):
    return offer_of(kind, facts)


cdef Offer offers_instance(object obj, object facts):
    return offer_of(obj, facts)


cdef Offer offer_of(object holder, object facts):
    """The offer of a type or an instance that has one of the methods, or None."""
    if hasattr(holder, "__arrow_c_device_array__"):
        return new_offer("arrow", acquire_device_array, facts)
    if hasattr(holder, "__arrow_c_array__"):
        return new_offer("arrow", acquire_array, facts)
    if hasattr(holder, "__arrow_c_stream__"):
        return new_offer("arrow", acquire_stream, facts)
    return None


# Makes a block of what a method of the producer returned.
ctypedef Managed* (*Take)(object answer, Offer offer, const Request* request) except NULL


cdef Managed* acquire_array(object obj, Offer offer, const Request* request) except? NULL:
    return ask(obj, "__arrow_c_array__", take_array, offer, request)


cdef Managed* acquire_device_array(object obj, Offer offer, const Request* request) except? NULL:
    return ask(obj, "__arrow_c_device_array__", take_device_array, offer, request)


cdef Managed* acquire_stream(object obj, Offer offer, const Request* request) except? NULL:
    return ask(obj, "__arrow_c_stream__", take_stream, offer, request)


cdef Managed* ask(object obj, str name, Take take, Offer offer, const Request* request) except? NULL:
    method = getattr(obj, name, None)
    if method is None:
        return NULL
    answer = method()
    try:
        return take(answer, offer, request)
    except BaseException:
        # The capsules are let go while the error is caught. Their destructors may be Python code, which would lose a
        # pending error.
        answer = None
        raise


cdef Managed* take_array(object answer, Offer offer, const Request* request) except NULL:
    cdef DLDevice cpu = DLDevice(kDLCPU, 0)
    schema, array = pair_of(answer, "__arrow_c_array__", ARRAY_NAME)
    return block_of(<ArrowArray*> PyCapsule_GetPointer(array, ARRAY_NAME), answer if request.peek else None,
                    row_of(schema, offer), cpu, True, offer)


cdef Managed* take_device_array(object answer, Offer offer, const Request* request) except NULL:
    cdef ArrowDeviceArray* given
    cdef Managed* managed
    cdef DLDevice device
    cdef bint is_ready
    schema, array = pair_of(answer, "__arrow_c_device_array__", DEVICE_ARRAY_NAME)
    given = <ArrowDeviceArray*> PyCapsule_GetPointer(array, DEVICE_ARRAY_NAME)
    device.device_type = given.device_type
    device.device_id = 0 if given.device_id == -1 else checked_id(given.device_id)
    # Pinned memory may have an event too.
    is_ready = is_host(device.device_type) and (device.device_type == kDLCPU or given.sync_event == NULL)
    managed = block_of(&given.array, answer if request.peek else None, row_of(schema, offer), device, is_ready, offer)
    if request.peek or device.device_type == kDLCPU:
        return managed
    # The array owns the event, and the block owns the array now.
    return awaited(managed, (<void**> given.sync_event)[0] if given.sync_event != NULL else NULL)


cdef int32_t checked_id(int64_t device_id) except -1:
    if not 0 <= device_id < 1 << 31:
        raise _refused("device_id", device_id, "is no number of a device")
    return <int32_t> device_id


cdef Managed* awaited(Managed* managed, void* event) except NULL:
    """Note the stream on which the memory is ready, after the event."""
    cdef DLDevice* device = &managed.abi.dl_tensor.device
    try:
        if has_streams(device.device_type):
            device_operations().set_producer_event(managed, event)
        elif event != NULL:
            raise _refused("sync_event", device_name(device[0]), "has events that dlbridge cannot wait for")
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef tuple pair_of(object answer, str method, const char* name):
    """The two capsules that a producer returned."""
    if (not isinstance(answer, tuple) or len(<tuple> answer) != 2
            or not PyCapsule_IsValid((<tuple> answer)[0], SCHEMA_NAME)
            or not PyCapsule_IsValid((<tuple> answer)[1], name)):
        raise _refused(method, type(answer).__qualname__,
                       f"is not a pair of capsules, {SCHEMA_NAME.decode()} and {name.decode()}")
    return <tuple> answer


# ---- a stream of one chunk -------------------------------------------------------------------------------------------

# A stream's functions are called without the GIL, because they may wait for threads that need it.

cdef Managed* take_stream(object capsule, Offer offer, const Request* request) except NULL:
    cdef ArrowArrayStream stream
    cdef ArrowArrayStream* given
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef DLDevice cpu = DLDevice(kDLCPU, 0)
    if not PyCapsule_IsValid(capsule, STREAM_NAME):
        raise _refused("__arrow_c_stream__", type(capsule).__qualname__, f"is no capsule {STREAM_NAME.decode()}")
    given = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, STREAM_NAME)
    release = <ReleaseStream> take_callback(<void**> &given.release)
    if release == NULL:
        raise _refused("release", "NULL", "is that of a stream that was consumed before")
    # The callback is not copied with the other fields, since another thread may be taking it.
    memcpy(&stream, given, <char*> &given.release - <char*> given)
    stream.release = release
    stream.private_data = given.private_data
    schema.release = NULL
    array.release = NULL
    try:
        ask_schema(&stream, &schema)
        row = row_of_schema(&schema, offer)
        only_chunk(&stream, &array, offer)
        return block_of(&array, None, row, cpu, True, offer)
    finally:
        with nogil:
            if schema.release != NULL:
                schema.release(&schema)
            if array.release != NULL:       # block_of() did not take it
                array.release(&array)
            if stream.release != NULL:      # its functions may have released it
                stream.release(&stream)


cdef int only_chunk(ArrowArrayStream* stream, ArrowArray* chunk, Offer offer) except -1:
    """The only chunk that has elements, or the last chunk if none has any."""
    cdef ArrowArray following
    ask_next(stream, chunk)
    while chunk.release != NULL:
        ask_next(stream, &following)
        if following.release == NULL:
            return 0
        if chunk.length and following.length:
            following.release(&following)
            raise refusal(ConversionError, "arrow", "chunks", "2 or more", "are not one block of memory",
                          way_out_of(offer, "chunks", "pass x.combine_chunks(), or the chunks one by one"))
        if chunk.length:
            following.release(&following)
        else:
            chunk.release(chunk)
            chunk[0] = following
    raise refusal(ConversionError, "arrow", "chunks", 0, "are no memory", "there is nothing to convert")


cdef int ask_schema(ArrowArrayStream* stream, ArrowSchema* schema) except -1:
    cdef int error
    memset(schema, 0, sizeof(ArrowSchema))
    with nogil:
        error = stream.get_schema(stream, schema)
    return check_call(stream, error, "get_schema")


cdef int ask_next(ArrowArrayStream* stream, ArrowArray* array) except -1:
    cdef int error
    memset(array, 0, sizeof(ArrowArray))
    with nogil:
        error = stream.get_next(stream, array)
    try:
        return check_call(stream, error, "get_next")
    except BaseException:
        if array.release != NULL:
            array.release(array)
            array.release = NULL
        raise


cdef int check_call(ArrowArrayStream* stream, int error, str call) except -1:
    cdef const char* text
    raise_pending()         # a producer's own exception says more than its error number
    if not error:
        return 0
    with nogil:
        text = stream.get_last_error(stream)
    said = (<bytes> text).decode("utf-8", "replace") if text != NULL else "it gives no reason"
    raise refusal(ConversionError, "arrow", call, error, f"is the producer's error: {said}",
                  "its message says what it needs")


# ---- one array -------------------------------------------------------------------------------------------------------

cdef int row_of(object capsule, Offer offer) except -1:
    return row_of_schema(<const ArrowSchema*> PyCapsule_GetPointer(capsule, SCHEMA_NAME), offer)


cdef int row_of_schema(const ArrowSchema* schema, Offer offer) except -1:
    """The row of a schema's dtype, or an error. A type that DLPack has needs neither children nor a dictionary."""
    if schema.release == NULL or schema.format == NULL:
        raise _refused("release" if schema.release == NULL else "format", "NULL", "is that of no schema")
    row = find_arrow(schema.format)
    if row >= 0 and schema.dictionary == NULL:
        return row
    text = (<bytes> schema.format).decode("utf-8", "replace")
    if schema.dictionary != NULL:
        raise refusal(ConversionError, "arrow", "dictionary", repr(text), "are indices of other values",
                      way_out_of(offer, "dictionary", "pass x.dictionary_decode(), or x.indices"))
    for beginning, (wrong, way_out) in WAYS_OUT.items():
        if text.startswith(beginning):
            break
    raise refusal(ConversionError, "arrow", "format", repr(text), wrong, way_out_of(offer, "format", way_out))


cdef str way_out_of(Offer offer, str field, str usual):
    """The way out that the library's facts have for a field, or the usual one."""
    return offer.facts.way_out(field) or usual


cdef Managed* block_of(
    ArrowArray* array, object lender, int row, DLDevice device, bint is_ready, Offer offer,
) except NULL:
    """A block for an array, which is moved out of its capsule unless a lender keeps it.

    If it is refused, an array that was moved is released.
    """
    cdef Managed* managed
    cdef Held* held = NULL
    if lender is None:
        held = moved(array)
        array = &held.array
    try:
        check(array)
        managed = managed_new(PROTOCOL_ARROW, 1)
    except BaseException:
        if held != NULL:
            release_held(held)
        raise
    if held != NULL:
        managed_own(managed, OWNS_WRAPPED, held)
    else:
        managed_own_object(managed, lender)
    managed_set_row(managed, row)
    managed_set_layout(managed, <const Py_ssize_t*> &array.length, NULL)
    managed.abi.dl_tensor.device = device
    managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    # DLPack's data is not const. The flag says that consumers must not write.
    managed.abi.dl_tensor.data = <void*> array.buffers[1]
    # If the offset overflows, it gets a value that managed_checked() refuses.
    if multiply_overflows(array.offset, get_row(row).item_bytes, <int64_t*> &managed.abi.dl_tensor.byte_offset):
        managed.abi.dl_tensor.byte_offset = <uint64_t> -1
    return without_nulls(managed_checked(managed), array, is_ready, offer)


cdef Held* moved(ArrowArray* array) except NULL:
    cdef Held* held = <Held*> malloc(sizeof(Held))
    if held == NULL:
        raise MemoryError
    release = <ReleaseArray> take_callback(<void**> &array.release)
    if release == NULL:
        free(held)
        raise _refused("release", "NULL", "is that of an array that was consumed before")
    held.wrapped.release = release_held
    held.wrapped.owns = OWNS_NOTHING
    held.wrapped.owner = NULL
    # The callback is not copied with the other fields, since another thread may be taking it.
    memcpy(&held.array, array, <char*> &array.release - <char*> array)
    held.array.release = release
    held.array.private_data = array.private_data
    return held


cdef void* take_callback(void** release) noexcept nogil:
    """Take a struct's release callback, or NULL. The caller that gets it owns what it releases.

    If several threads take from one capsule, or one takes several times, only the first of them gets it.
    """
    cdef void* callback = load_pointer(release)
    return callback if callback != NULL and replace_pointer(release, callback, NULL) else NULL


cdef void release_held(void* owner) noexcept nogil:
    release_foreign(owner, drop_held)


cdef void drop_held(void* owner) noexcept nogil:
    (<Held*> owner).array.release(&(<Held*> owner).array)
    free(owner)


cdef int check(const ArrowArray* array) except -1:
    """Check what an ArrowArray can reveal beyond what every block is checked for."""
    cdef int64_t end
    if array.release == NULL:           # possible if a lender keeps the array
        raise _refused("release", "NULL", "is that of an array that was consumed before")
    if array.n_buffers != 2:
        raise _refused("n_buffers", array.n_buffers, "is not 2: the bits of validity, and the values")
    if array.buffers == NULL:
        raise _refused("buffers", "NULL", "has neither bits of validity nor values")
    if array.length < 0 or array.offset < 0 or add_overflows(array.offset, array.length, &end):
        raise _refused("offset, length", f"{array.offset}, {array.length}", "are no elements of any memory")
    if array.null_count < -1 or array.null_count > array.length:
        raise _refused("null_count", array.null_count, f"is no count of {array.length} elements")
    return 0


cdef Managed* without_nulls(Managed* managed, const ArrowArray* array, bint is_ready, Offer offer) except NULL:
    """Refuse an array with nulls. If they were not counted, they are counted here.

    The length was checked before, since as many validity bits are read.
    """
    cdef int64_t nulls = array.null_count
    if nulls == -1 and array.buffers[0] == NULL:
        nulls = 0
    if nulls == -1 and is_ready:
        nulls = count_nulls(<const uint8_t*> array.buffers[0], array.offset, array.offset + array.length)
    if not nulls:
        return managed
    managed_release(managed)
    if nulls == -1:
        raise refusal(ConversionError, "arrow", "null_count", -1,
                      "is unknown, and only memory of the host that is ready is looked into",
                      "count them, x.null_count or so")
    raise refusal(ConversionError, "arrow", "null_count", nulls,
                  "elements have no value, which no array library can say",
                  way_out_of(offer, "null_count", "pass x.fill_null(0), or x.drop_null()"))


cdef int64_t count_nulls(const uint8_t* bits, int64_t index, int64_t end) noexcept nogil:
    cdef int64_t nulls = 0
    while index < end:
        if index & 7 == 0 and index + 8 <= end:
            nulls += 8 - popcount(bits[index >> 3])
            index += 8
        else:
            nulls += not bits[index >> 3] >> (index & 7) & 1
            index += 1
    return nulls


cdef object _refused(str field, object value, str wrong):
    return refusal(ConversionError, "arrow", field, value, wrong, REPORT)
