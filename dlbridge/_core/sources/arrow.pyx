"""Arrow's C interfaces: ``__arrow_c_device_array__``, ``__arrow_c_array__``, and a stream of chunks.

Only arrays without nulls are taken: of numbers, of bools of a byte each (the canonical extension type ``arrow.bool8``),
and of lists of these, all of one length, which are axes. Arrow's memory is immutable, so it is read-only here.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, kDLCPU
from dlbridge._core.arrow_abi cimport (
    ARRAY_NAME, DEVICE_ARRAY_NAME, SCHEMA_NAME, STREAM_NAME, ArrowArray, ArrowArrayStream, ArrowDeviceArray,
    ArrowSchema,
)
from dlbridge._core.block cimport (
    PROTOCOL_ARROW, Managed, managed_checked, managed_nbytes, managed_new_over, managed_release, managed_set_row,
    managed_span, managed_take_tuples,
)
from dlbridge._core.capsule cimport destroy_array, destroy_schema, new_struct
from dlbridge._core.copies cimport is_watched, note_made
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host
from dlbridge._core.dtypes cimport find_name
from dlbridge._core.pending cimport raise_pending
from dlbridge._core.place cimport gathered
from dlbridge._core.request cimport COPY_NEVER, Request
from dlbridge._core.sources.arrow_array cimport (
    ArrowDescription, block_of, block_of_nothing, hint_of, pair_of, read_schema, refused, take_callback,
)
from dlbridge._core.sources.offer cimport Offer, new_offer

from dlbridge._core.copies import GATHERED, GATHERED_HINT
from dlbridge._core.sources.arrow_array import check_given
from dlbridge.errors import (
    AGAIN, ConversionError, CopyRequiredError, DLBridgeError, MissingLibraryError, full_name, refusal, shown,
)

# Makes a block of what a method of the producer returned.
ctypedef Managed* (*Take)(object answer, Offer offer, const Request* request) except NULL


cdef Offer offers(object holder, object facts, str attribute):
    cdef Offer offer
    if attribute == "__arrow_c_device_array__":
        return new_offer("arrow", acquire_device_array, facts)
    if attribute == "__arrow_c_array__":
        offer = new_offer("arrow", acquire_array, facts)
        offer.arrow_form = facts.arrow_form
        return offer
    offer = new_offer("arrow", acquire_array_stream, facts)
    offer.is_stream = True
    return offer


cdef object schema_of(object obj):
    """What ``__arrow_c_schema__`` gives, or None if it fails: the stream will then say what is wrong."""
    try:
        return obj.__arrow_c_schema__()
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None


cdef Managed* acquire_array(object obj, Offer offer, const Request* request) except? NULL:
    if offer.arrow_form is not None:
        return acquire_formed(obj, offer, request)
    return ask(obj, "__arrow_c_array__", take_array, offer, request)


cdef Managed* acquire_formed(object obj, Offer offer, const Request* request) except? NULL:
    """Acquire flat memory, and give it the form that the library's facts know. This is for copy=False only, since the
    type's own protocol copies.
    """
    cdef Managed* flat
    cdef Managed* managed
    cdef int64_t nbytes
    cdef int row
    try:
        flat = ask(obj, "__arrow_c_array__", take_array, offer, request)
    except ConversionError as error:
        raise copy_required(obj, error.reason) from error
    if flat == NULL:
        return NULL
    try:
        form = offer.arrow_form(obj)
        if form is None:
            raise copy_required(obj, "its elements have another form in memory")
        name, shape, strides, read_only = form
        row = find_name(name)
    except BaseException:
        managed_release(flat)
        raise
    nbytes = managed_nbytes(flat)
    managed = managed_new_over(flat, PROTOCOL_ARROW, len(shape))
    managed_set_row(managed, row)
    managed_take_tuples(managed, shape, strides)
    if read_only:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    managed = managed_checked(managed)
    if managed_span(managed).high_bytes <= nbytes:
        return managed
    managed_release(managed)
    raise refused("length", nbytes, f"bytes are fewer than shape {shape} has")


cdef object copy_required(object obj, str reason):
    return refusal(CopyRequiredError, "arrow", "copy", False,
                   f"but {type(obj).__qualname__} can only be copied: {reason}", "pass copy=None")


cdef Managed* acquire_device_array(object obj, Offer offer, const Request* request) except? NULL:
    return ask(obj, "__arrow_c_device_array__", take_device_array, offer, request)


cdef Managed* acquire_array_stream(object obj, Offer offer, const Request* request) except? NULL:
    cdef ArrowDescription description
    if not offer.facts.records and hasattr(obj, "__arrow_c_schema__"):
        # A stream that is refused for its type stays unread, since its producer may give it only once.
        schema = schema_of(obj)
        if PyCapsule_IsValid(schema, SCHEMA_NAME):
            describe_capsule(schema, offer, &description)
    return ask(obj, "__arrow_c_stream__", take_stream, offer, request)


cdef Managed* ask(object obj, str name, Take take, Offer offer, const Request* request) except? NULL:
    method = getattr(obj, name, None)
    if method is None:
        return NULL
    try:
        answer = method()
    except (DLBridgeError, MemoryError, RecursionError, OSError):
        raise
    except ImportError as error:
        raise refusal(MissingLibraryError, "arrow", name, shown(type(obj), full_name), "needs pyarrow",
                      offer.facts.hint("uninstalled") or "pip install pyarrow") from error
    except Exception as error:
        if not offer.facts.records:
            raise
        raise refusal(ConversionError, "arrow", name, shown(type(obj), full_name), f"gives nothing: {error}",
                      hint_of(offer, "nothing", 0)) from error
    try:
        return take(answer, offer, request)
    except BaseException:
        # The capsules are released while the error is caught. Their destructors may be Python code, which would lose a
        # pending error.
        answer = None
        raise


cdef Managed* take_array(object answer, Offer offer, const Request* request) except NULL:
    cdef DLDevice cpu = DLDevice(kDLCPU, 0)
    cdef ArrowDescription description
    schema, array = pair_of(answer, "__arrow_c_array__", ARRAY_NAME)
    describe_capsule(schema, offer, &description)
    return block_of(
        <ArrowArray*> PyCapsule_GetPointer(array, ARRAY_NAME), answer if request.peek else None, &description, cpu,
        True, offer)


cdef Managed* take_device_array(object answer, Offer offer, const Request* request) except NULL:
    cdef ArrowDeviceArray* given
    cdef Managed* managed
    cdef ArrowDescription description
    cdef DLDevice device
    cdef bint is_ready
    schema, array = pair_of(answer, "__arrow_c_device_array__", DEVICE_ARRAY_NAME)
    given = <ArrowDeviceArray*> PyCapsule_GetPointer(array, DEVICE_ARRAY_NAME)
    device.device_type = given.device_type
    device.device_id = 0 if given.device_id == -1 else checked_id(given.device_id)
    # Pinned memory may have an event too.
    is_ready = is_host(device.device_type) and (device.device_type == kDLCPU or given.sync_event == NULL)
    describe_capsule(schema, offer, &description)
    managed = block_of(&given.array, answer if request.peek else None, &description, device, is_ready, offer)
    if request.peek or device.device_type == kDLCPU:
        return managed
    # The array owns the event, and the block owns the array now.
    return awaited(managed, (<void**> given.sync_event)[0] if given.sync_event != NULL else NULL)


cdef int32_t checked_id(int64_t device_id) except -1:
    if not 0 <= device_id < 1 << 31:
        raise refused("device_id", device_id, "is no number of a device")
    return <int32_t> device_id


cdef Managed* awaited(Managed* managed, void* event) except NULL:
    """Note the stream on which the memory is ready, after the event."""
    cdef DLDevice* device = &managed.abi.dl_tensor.device
    try:
        if has_streams(device.device_type):
            device_operations().set_producer_event(managed, event)
        elif event != NULL:
            raise refused("sync_event", device_name(device[0]), "has events that dlbridge cannot wait for")
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef int describe_capsule(object capsule, Offer offer, ArrowDescription* out) except -1:
    return read_schema(<const ArrowSchema*> PyCapsule_GetPointer(capsule, SCHEMA_NAME), offer, out)


cdef Managed* acquire_capsule(object capsule, Offer offer, const Request* request) except? NULL:
    """A stream that an object's method gave, which is read once. An array's capsule says nothing without its schema."""
    if request.peek:
        raise refusal(ConversionError, "arrow", "capsule", repr(STREAM_NAME.decode()),
                      "can be read once, and is not read to be explained", "call dlbridge.convert(x, to)")
    return take_stream(capsule, offer, request)


cdef Managed* acquire_pair(object pair, Offer offer, const Request* request) except? NULL:
    """The two capsules that an object's method gave for an array; NULL of any other pair."""
    schema, array = pair
    if not PyCapsule_IsValid(schema, SCHEMA_NAME):
        return NULL
    try:
        if PyCapsule_IsValid(array, DEVICE_ARRAY_NAME):
            return take_device_array(pair, offer, request)
        return take_array(pair, offer, request) if PyCapsule_IsValid(array, ARRAY_NAME) else NULL
    except DLBridgeError as error:
        if request.peek:        # nothing was taken
            raise
        raise told_to_ask_again(error) from error


# ---- streams ---------------------------------------------------------------------------------------------------------

# Chunks of one type are shared if only one has elements, and else gathered. A stream's functions are called without the
# GIL, because they may wait for threads that need it.

ctypedef void (*ReleaseStream)(ArrowArrayStream*) noexcept nogil

# The chunks of a stream that have elements.
ctypedef struct Chunks:
    Managed** blocks
    size_t count


cdef Managed* take_stream(object capsule, Offer offer, const Request* request) except NULL:
    cdef ArrowArrayStream stream
    cdef ArrowSchema schema
    cdef ArrowDescription description
    move_stream(capsule, &stream)
    schema.release = NULL
    try:
        ask_schema(&stream, &schema)
        read_schema(&schema, offer, &description)
        return block_of_stream(&stream, &description, offer, request)
    except DLBridgeError as error:
        if offer.facts.is_of_a_library():
            raise
        raise told_to_ask_again(error) from error
    finally:
        with nogil:
            if schema.release != NULL:
                schema.release(&schema)
            end_stream(&stream)


def told_to_ask_again(error):
    """The error with the hint to ask the producer again, since the stream or the array was consumed."""
    return refusal(type(error), error.stage, error.field, error.value, error.wrong, f"{error.hint}; {AGAIN}")


cdef Managed* block_of_stream(
    ArrowArrayStream* stream, const ArrowDescription* description, Offer offer, const Request* request,
) except NULL:
    """The only chunk that has elements is shared. Several are gathered into one array, which is a copy."""
    cdef Chunks chunks = Chunks(NULL, 0)
    cdef size_t index
    cdef Managed* only
    cdef Managed* made
    try:
        while read_chunk(stream, description, offer, &chunks):
            if chunks.count > 1 and request.copy == COPY_NEVER:
                raise refusal(CopyRequiredError, "arrow", "chunks", "2 or more",
                              "are gathered by a copy, and copy=False forbids it", "pass copy=None")
        if chunks.count > 1:
            made = gathered(chunks.blocks, chunks.count, request.peek)
            if not is_watched() or request.peek:
                return made
            return note_made(made, None, "one array", f"chunks {GATHERED}", GATHERED_HINT)
        if not chunks.count:
            return block_of_nothing(description)
        only, chunks.count = chunks.blocks[0], 0
        return only
    finally:
        for index in range(chunks.count):
            managed_release(chunks.blocks[index])
        free(chunks.blocks)


cdef bint read_chunk(
    ArrowArrayStream* stream, const ArrowDescription* description, Offer offer, Chunks* out,
) except -1:
    """Read the next chunk, which is noted if it has elements; False at the end."""
    cdef DLDevice cpu = DLDevice(kDLCPU, 0)
    cdef ArrowArray array
    cdef Managed* managed
    cdef void* room
    if not has_next(stream, &array):
        return False
    try:
        managed = block_of(&array, None, description, cpu, True, offer)
    finally:
        if array.release != NULL:       # block_of() did not take it
            array.release(&array)
    if not managed.abi.dl_tensor.shape[0]:
        managed_release(managed)
        return True
    if out.count & (out.count - 1) == 0:        # the room is full: 0, or a power of 2
        room = realloc(out.blocks, (2 * out.count or 1) * sizeof(Managed*))
        if room == NULL:
            managed_release(managed)
            raise MemoryError
        out.blocks = <Managed**> room
    out.blocks[out.count] = managed
    out.count += 1
    return True


cdef int move_stream(object capsule, ArrowArrayStream* out) except -1:
    """Move a stream out of its capsule. The caller ends it."""
    cdef ArrowArrayStream* given
    if not PyCapsule_IsValid(capsule, STREAM_NAME):
        raise refused("__arrow_c_stream__", type(capsule).__qualname__, f"is no capsule {STREAM_NAME.decode()}")
    given = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, STREAM_NAME)
    release = <ReleaseStream> take_callback(<void**> &given.release)
    if release == NULL:
        raise refused("release", "NULL", "is that of a stream that was consumed before")
    # The callback is not copied with the other fields, since another thread may be taking it.
    memcpy(out, given, <char*> &given.release - <char*> given)
    out.release = release
    out.private_data = given.private_data


cdef void end_stream(ArrowArrayStream* stream) noexcept nogil:
    if stream.release != NULL:          # its functions may have released it
        stream.release(stream)


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
    reason = (<bytes> text).decode("utf-8", "replace") if text != NULL else "it gives no reason"
    raise refusal(ConversionError, "arrow", call, error, f"is the producer's error: {reason}",
                  "its message says what it needs")


# ---- what another library is to read ---------------------------------------------------------------------------------

def chunks_of(capsule):
    """Read a stream: the capsule of its schema, and of each chunk the capsules of a schema and an array, checked."""
    cdef ArrowArrayStream stream
    cdef list chunks = []
    move_stream(capsule, &stream)
    try:
        schema = new_schema(&stream)
        while True:
            array = new_struct(sizeof(ArrowArray), ARRAY_NAME, destroy_array)
            if not has_next(&stream, <ArrowArray*> PyCapsule_GetPointer(array, ARRAY_NAME)):
                return schema, chunks
            pair = new_schema(&stream), array
            check_given(pair)
            chunks.append(pair)
    finally:
        with nogil:
            end_stream(&stream)


cdef bint has_next(ArrowArrayStream* stream, ArrowArray* array) except -1:
    ask_next(stream, array)
    return array.release != NULL


cdef object new_schema(ArrowArrayStream* stream):
    capsule = new_struct(sizeof(ArrowSchema), SCHEMA_NAME, destroy_schema)
    ask_schema(stream, <ArrowSchema*> PyCapsule_GetPointer(capsule, SCHEMA_NAME))
    return capsule
