"""Arrow's C interfaces: ``__arrow_c_device_array__``, ``__arrow_c_array__``, and a stream of chunks.

Only arrays of numbers without nulls are taken, bools of a byte each (the canonical extension type ``arrow.bool8``), and
lists of one length of them, which are axes. Arrow's memory is immutable, so it is read-only here.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset, strcmp

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, DLTensor, kDLCPU
from dlbridge._core.arrow_abi cimport (
    ARRAY_NAME,
    DEVICE_ARRAY_NAME,
    SCHEMA_NAME,
    STREAM_NAME,
    ArrowArray,
    ArrowArrayStream,
    ArrowDeviceArray,
    ArrowSchema,
)
from dlbridge._core.arrow_capsule cimport destroy_array, destroy_schema, new_struct
from dlbridge._core.atomic cimport add, load_pointer, replace_pointer
from dlbridge._core.block cimport (
    OWNS_BASE,
    OWNS_NOTHING,
    OWNS_WRAPPED,
    PROTOCOL_ARROW,
    Managed,
    Wrapped,
    managed_checked,
    managed_count,
    managed_data,
    managed_nbytes,
    managed_new,
    managed_own,
    managed_own_object,
    managed_release,
    managed_set_row,
    managed_span,
    release_foreign,
)
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host
from dlbridge._core.dtypes cimport find_name, get_row
from dlbridge._core.facts cimport ARROW_FORM
from dlbridge._core.layout cimport LARGEST_SPAN, MAX_NDIM, add_overflows, fill_compact, multiply_overflows
from dlbridge._core.pending cimport raise_pending
from dlbridge._core.place cimport allocated, copies_made
from dlbridge._core.request cimport COPY_NEVER, Request
from dlbridge._core.sources.arrow_schema cimport Description, hint_of, read_schema, refused
from dlbridge._core.sources.offer cimport Offer, new_offer

from dlbridge.errors import (
    AGAIN,
    ConversionError,
    CopyRequiredError,
    DLBridgeError,
    MissingLibraryError,
    full_name,
    refusal,
    shown,
)

cdef extern from *:
    int popcount "__builtin_popcount"(unsigned int bits) noexcept nogil

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()


# The elements of an array that count.
ctypedef struct Range:
    const ArrowArray* array
    int64_t first               # in the array's buffers
    int64_t count


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
        offer = new_offer("arrow", acquire_array_stream, facts)
        offer.is_stream = True
        return offer
    return None


cdef object schema_of(object obj):
    """What ``__arrow_c_schema__`` gives, or None if it fails: the stream will then say what is wrong."""
    try:
        return obj.__arrow_c_schema__()
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None


# Makes a block of what a method of the producer returned.
ctypedef Managed* (*Take)(object answer, Offer offer, const Request* request) except NULL


cdef Managed* acquire_array(object obj, Offer offer, const Request* request) except? NULL:
    if offer.known & ARROW_FORM:
        return acquire_formed(obj, offer, request)
    return ask(obj, "__arrow_c_array__", take_array, offer, request)


cdef Managed* acquire_formed(object obj, Offer offer, const Request* request) except? NULL:
    """An array that has another form than Arrow says; its own protocol copies, and was declined with copy=False."""
    cdef Managed* flat
    cdef Managed* managed
    try:
        flat = ask(obj, "__arrow_c_array__", take_array, offer, request)
    except ConversionError as error:
        raise copy_required(obj, error.reason) from error
    if flat == NULL:
        return NULL
    try:
        form = offer.values[<int> ARROW_FORM](obj)
        if form is None:
            raise copy_required(obj, "its elements have another form in memory")
        managed = managed_new(PROTOCOL_ARROW, len(form[1]))
    except BaseException:
        managed_release(flat)
        raise
    managed_own(managed, OWNS_BASE, flat)
    return give_form(managed, flat, form)


cdef object copy_required(object obj, str reason):
    return refusal(CopyRequiredError, "arrow", "copy", False,
                   f"but {type(obj).__qualname__} can only be copied: {reason}", "pass copy=None")


cdef Managed* give_form(Managed* managed, const Managed* flat, tuple form) except NULL:
    """Put a block on the memory of another one, which it owns. On failure it is released."""
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef int64_t nbytes = managed_nbytes(flat)
    cdef int axis
    tensor.data = managed_data(flat)
    tensor.device = flat.abi.dl_tensor.device
    try:
        name, shape, strides, read_only = form
        managed_set_row(managed, find_name(name))
        for axis in range(tensor.ndim):
            tensor.shape[axis], tensor.strides[axis] = shape[axis], strides[axis]
    except BaseException:
        managed_release(managed)
        raise
    if read_only:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    managed = managed_checked(managed)
    if managed_span(managed).high_bytes <= nbytes:
        return managed
    managed_release(managed)
    raise refused("length", nbytes, f"bytes are fewer than shape {shape} has")


cdef Managed* acquire_device_array(object obj, Offer offer, const Request* request) except? NULL:
    return ask(obj, "__arrow_c_device_array__", take_device_array, offer, request)


cdef Managed* acquire_array_stream(object obj, Offer offer, const Request* request) except? NULL:
    cdef Description description
    if not offer.facts.records and hasattr(obj, "__arrow_c_schema__"):
        # What is refused for its type stays unread, since the producer may give its stream once.
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
    cdef Description description
    schema, array = pair_of(answer, "__arrow_c_array__", ARRAY_NAME)
    describe_capsule(schema, offer, &description)
    return block_of(
        <ArrowArray*> PyCapsule_GetPointer(array, ARRAY_NAME), answer if request.peek else None, &description, cpu,
        True, offer)


cdef Managed* take_device_array(object answer, Offer offer, const Request* request) except NULL:
    cdef ArrowDeviceArray* given
    cdef Managed* managed
    cdef Description description
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


cdef tuple pair_of(object answer, str method, const char* name):
    """The two capsules that a producer returned."""
    if (not isinstance(answer, tuple) or len(<tuple> answer) != 2
            or not PyCapsule_IsValid((<tuple> answer)[0], SCHEMA_NAME)
            or not PyCapsule_IsValid((<tuple> answer)[1], name)):
        raise refused(method, type(answer).__qualname__,
                      f"is not a pair of capsules, {SCHEMA_NAME.decode()} and {name.decode()}")
    return <tuple> answer


# ---- a stream --------------------------------------------------------------------------------------------------------

# A stream's functions are called without the GIL, because they may wait for threads that need it.

# The chunks of a stream that have elements.
ctypedef struct Chunks:
    Managed** blocks
    size_t count


cdef Managed* take_stream(object capsule, Offer offer, const Request* request) except NULL:
    cdef ArrowArrayStream stream
    cdef ArrowSchema schema
    cdef Description description
    move_stream(capsule, &stream)
    schema.release = NULL
    try:
        ask_schema(&stream, &schema)
        read_schema(&schema, offer, &description)
        return block_of_stream(&stream, &description, offer, request)
    except DLBridgeError as error:
        if offer.facts.records:
            raise
        raise told_to_ask_again(error) from error
    finally:
        with nogil:
            if schema.release != NULL:
                schema.release(&schema)
            end_stream(&stream)


def told_to_ask_again(error):
    """The error of a stream that was read, of a producer that may give it once."""
    return refusal(type(error), error.stage, error.field, error.value, error.wrong, f"{error.hint}; {AGAIN}")


cdef Managed* block_of_stream(
    ArrowArrayStream* stream, const Description* description, Offer offer, const Request* request,
) except NULL:
    """The only chunk that has elements is shared. Several are gathered into one array, which is a copy."""
    cdef Chunks chunks = Chunks(NULL, 0)
    cdef size_t index
    cdef Managed* only
    try:
        while read_chunk(stream, description, offer, &chunks):
            if chunks.count > 1 and request.copy == COPY_NEVER:
                raise refusal(CopyRequiredError, "arrow", "chunks", "2 or more",
                              "are gathered by a copy, and copy=False forbids it", "pass copy=None")
        if chunks.count > 1:
            return gathered(&chunks, request.peek)
        if not chunks.count:
            return block_of_nothing(description)
        only, chunks.count = chunks.blocks[0], 0
        return only
    finally:
        for index in range(chunks.count):
            managed_release(chunks.blocks[index])
        free(chunks.blocks)


cdef bint read_chunk(
    ArrowArrayStream* stream, const Description* description, Offer offer, Chunks* out,
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
    if out.count & (out.count - 1) == 0:        # it is full, with a power of 2, or empty
        room = realloc(out.blocks, (2 * out.count or 1) * sizeof(Managed*))
        if room == NULL:
            managed_release(managed)
            raise MemoryError
        out.blocks = <Managed**> room
    out.blocks[out.count] = managed
    out.count += 1
    return True


cdef Managed* gathered(Chunks* chunks, bint peek) except NULL:
    """A copy of the elements of several chunks, side by side. To be looked at alone, it stays empty."""
    cdef const Managed* first = chunks.blocks[0]
    cdef Managed* made
    cdef char* at
    cdef int64_t rows = 0, nbytes = 0
    cdef size_t index
    for index in range(chunks.count):
        rows += chunks.blocks[index].abi.dl_tensor.shape[0]
        if add_overflows(nbytes, managed_nbytes(chunks.blocks[index]), &nbytes) or nbytes > LARGEST_SPAN:
            raise refused("length", rows, "has more bytes than any memory")
    made = allocated(<Managed*> first, nbytes)
    made.abi.dl_tensor.shape[0] = rows
    memcpy(made.abi.dl_tensor.strides, first.abi.dl_tensor.strides, made.abi.dl_tensor.ndim * sizeof(int64_t))
    at = <char*> made.abi.dl_tensor.data
    add(&copies_made, 1)
    with nogil:
        for index in range(chunks.count):
            if not peek:
                memcpy(at, managed_data(chunks.blocks[index]), managed_nbytes(chunks.blocks[index]))
            at += managed_nbytes(chunks.blocks[index])
    return managed_checked(made)


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
    return 0


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


def check_given(capsules):
    """Check a schema and its array for what they can reveal, since not every reader does that."""
    schema, array = pair_of(capsules, "__arrow_c_array__", ARRAY_NAME)
    check_parts(<const ArrowSchema*> PyCapsule_GetPointer(schema, SCHEMA_NAME),
                <const ArrowArray*> PyCapsule_GetPointer(array, ARRAY_NAME))


cdef int check_parts(const ArrowSchema* schema, const ArrowArray* array) except -1:
    """Check an array of any type, and those in it."""
    cdef int64_t index
    if schema == NULL or array == NULL or schema.format == NULL:
        raise refused("children", "NULL", "has no schema, no array or no format")
    if array.release == NULL:
        raise refused("release", "NULL", "is that of an array that was consumed before")
    if schema.n_children != array.n_children or schema.n_children < 0 or (
            schema.n_children and (schema.children == NULL or array.children == NULL)):
        raise refused("n_children", array.n_children, f"is not {schema.n_children}, as the schema has, or NULL")
    if array.n_buffers < 0 or array.n_buffers > 64 or (array.n_buffers and array.buffers == NULL):
        raise refused("n_buffers", array.n_buffers, "is no count of buffers, or they are NULL")
    check_extent(array)
    if (schema.dictionary == NULL) != (array.dictionary == NULL):
        raise refused("dictionary", "NULL", "is missing in the schema or in the array")
    Py_EnterRecursiveCall(" while checking what is in an array")
    try:
        if schema.dictionary != NULL:
            check_parts(schema.dictionary, array.dictionary)
        for index in range(schema.n_children):
            if schema.children[index] != NULL and schema.children[index].name == NULL:
                raise refused("name", "NULL", f"is that of child {index}")
            check_parts(schema.children[index], array.children[index])
            if strcmp(schema.format, b"+s") == 0 and array.children[index].length < array.offset + array.length:
                raise refused("length", array.children[index].length, f"of child {index} is less than its struct's")
    finally:
        Py_LeaveRecursiveCall()
    return 0


# ---- one array -------------------------------------------------------------------------------------------------------

cdef int describe_capsule(object capsule, Offer offer, Description* out) except -1:
    return read_schema(<const ArrowSchema*> PyCapsule_GetPointer(capsule, SCHEMA_NAME), offer, out)


cdef Managed* block_of(
    ArrowArray* array, object lender, const Description* description, DLDevice device, bint is_ready, Offer offer,
) except NULL:
    """A block for an array, which is moved out of its capsule unless a lender keeps it.

    If it is refused, an array that was moved is released.
    """
    cdef Managed* managed
    cdef Range[MAX_NDIM] ranges
    cdef Held* held = NULL
    if lender is None:
        held = moved(array)
        array = &held.array
    try:
        find_ranges(array, description, is_ready, ranges)
        managed = managed_new(PROTOCOL_ARROW, 1 + description.ndim)
    except BaseException:
        if held != NULL:
            release_held(held)
        raise
    if held != NULL:
        managed_own(managed, OWNS_WRAPPED, held)
    else:
        managed_own_object(managed, lender)
    fill(managed, description, array.length, &ranges[description.levels])
    managed.abi.dl_tensor.device = device
    managed = without_nulls(managed_checked(managed), description, ranges, is_ready, offer)
    return managed if description.row != find_name("bool") else with_plain_bools(managed, is_ready, offer)


cdef Managed* block_of_nothing(const Description* description) except NULL:
    """A block without elements, for a stream without chunks, as of a column whose rows were all dropped."""
    cdef Managed* managed = managed_new(PROTOCOL_ARROW, 1 + description.ndim)
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef int32_t axis
    managed_set_row(managed, description.row)
    tensor.shape[0] = 0
    for axis in range(description.ndim):
        tensor.shape[1 + axis] = description.shape[axis]
    fill_compact(tensor.ndim, tensor.shape, tensor.strides)
    managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    return managed_checked(managed)


cdef void fill(Managed* managed, const Description* description, int64_t length, const Range* values) noexcept:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    cdef int32_t axis
    managed_set_row(managed, description.row)
    tensor.shape[0], tensor.strides[0] = length, 1
    for axis in range(description.ndim):
        tensor.shape[1 + axis], tensor.strides[1 + axis] = description.shape[axis], description.strides[axis]
        tensor.strides[0] *= description.shape[axis]        # as many as the lists have, which was checked
    managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    # DLPack's data is not const. The flag says that consumers must not write.
    tensor.data = <void*> values.array.buffers[1]
    # If the offset overflows, it gets a value that managed_checked() refuses.
    if multiply_overflows(values.first, get_row(description.row).item_bytes, <int64_t*> &tensor.byte_offset):
        tensor.byte_offset = <uint64_t> -1


cdef Held* moved(ArrowArray* array) except NULL:
    cdef Held* held = <Held*> malloc(sizeof(Held))
    if held == NULL:
        raise MemoryError
    release = <ReleaseArray> take_callback(<void**> &array.release)
    if release == NULL:
        free(held)
        raise refused("release", "NULL", "is that of an array that was consumed before")
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


cdef int find_ranges(
    const ArrowArray* array, const Description* description, bint is_ready, Range* ranges,
) except -1:
    """Find which elements of each level belong to the array: of the lists, of those in them, and of the values."""
    cdef int32_t level
    ranges[0] = Range(array, array.offset, array.length)
    for level in range(description.levels):
        array = ranges[level].array
        check(array, 2 if description.offset_bytes[level] else 1)
        if array.n_children != 1 or array.children == NULL or array.children[0] == NULL:
            raise refused("n_children", array.n_children, "is not 1, the values of the lists")
        ranges[level + 1] = range_in(
            &ranges[level], description.lengths[level], description.offset_bytes[level], is_ready)
    return check(ranges[description.levels].array, 2)


cdef Range range_in(const Range* lists, int64_t length, int32_t offset_bytes, bint is_ready) except *:
    """The elements of lists of one length."""
    cdef Range found
    cdef int64_t end = 0
    cdef bint overflow = multiply_overflows(lists.count, length, &found.count)
    found.array = lists.array.children[0]
    found.first = 0
    if not offset_bytes:
        overflow = overflow or multiply_overflows(lists.first, length, &found.first)
    elif lists.count:
        check_offsets(lists, length, offset_bytes, is_ready)
        found.first = offset_at(lists, 0, offset_bytes)
    if overflow or found.first < 0 or add_overflows(found.first, found.count, &end) or end > found.array.length or (
            add_overflows(found.first, found.array.offset, &found.first)):
        raise refused("length", found.array.length, f"has not the values of {lists.count} lists of {length}")
    return found


cdef int check_offsets(const Range* lists, int64_t length, int32_t offset_bytes, bint is_ready) except -1:
    """Refuse lists that do not all have the length that their tensor type says."""
    cdef int64_t index, begin, end
    if not is_ready or lists.array.buffers[1] == NULL:
        raise refused("buffers", "NULL or on a device", "are offsets of lists, which have to be looked at")
    begin = offset_at(lists, 0, offset_bytes)
    for index in range(lists.count):
        end = offset_at(lists, index + 1, offset_bytes)
        if add_overflows(begin, length, &begin) or begin != end:
            raise refused("offsets", f"of list {index}", f"are not those of {length} values")
    return 0


cdef inline int64_t offset_at(const Range* lists, int64_t index, int32_t offset_bytes) noexcept nogil:
    if offset_bytes == sizeof(int32_t):
        return (<const int32_t*> lists.array.buffers[1])[lists.first + index]
    return (<const int64_t*> lists.array.buffers[1])[lists.first + index]


cdef int check(const ArrowArray* array, int64_t buffers) except -1:
    """Check what an ArrowArray can reveal beyond what every block is checked for."""
    if array.release == NULL:           # possible if a lender keeps the array
        raise refused("release", "NULL", "is that of an array that was consumed before")
    if array.n_buffers != buffers:
        raise refused("n_buffers", array.n_buffers,
                      "is not 2: the bits of validity, and the values" if buffers == 2 else
                      "is not 1: the bits of validity of the lists")
    if array.buffers == NULL:
        raise refused("buffers", "NULL", "has neither bits of validity nor values")
    return check_extent(array)


cdef int check_extent(const ArrowArray* array) except -1:
    cdef int64_t end
    if array.length < 0 or array.offset < 0 or add_overflows(array.offset, array.length, &end):
        raise refused("offset, length", f"{array.offset}, {array.length}", "are no elements of any memory")
    if array.null_count < -1 or array.null_count > array.length:
        raise refused("null_count", array.null_count, f"is no count of {array.length} elements")
    return 0


cdef Managed* without_nulls(
    Managed* managed, const Description* description, const Range* ranges, bint is_ready, Offer offer,
) except NULL:
    """Refuse an array with nulls. If they were not counted, they are counted here.

    The length was checked before, since as many validity bits are read.
    """
    cdef int32_t level
    cdef int64_t nulls = 0
    for level in range(description.levels + 1):
        nulls = nulls_in(&ranges[level], is_ready)
        if nulls:
            break
    if not nulls:
        return managed
    managed_release(managed)
    if nulls == -1:
        raise refusal(ConversionError, "arrow", "null_count", -1,
                      "is unknown, and only memory of the host that is ready is looked into",
                      "count them, x.null_count or so")
    raise refusal(ConversionError, "arrow", "null_count", nulls,
                  "elements have no value, which no array library can say",
                  hint_of(offer, "null_count" if level == description.levels else "null lists", level))


cdef int64_t nulls_in(const Range* elements, bint is_ready) noexcept nogil:
    """How many of the elements are null, or -1 if that cannot be found out. The array may have others, beside them."""
    cdef const ArrowArray* array = elements.array
    if not array.null_count or array.buffers[0] == NULL and array.null_count == -1:
        return 0
    if array.null_count > 0 and (elements.count == array.length or array.buffers[0] == NULL):
        return array.null_count
    if not is_ready:
        return -1
    return count_nulls(<const uint8_t*> array.buffers[0], elements.first, elements.first + elements.count)


cdef Managed* with_plain_bools(Managed* managed, bint is_ready, Offer offer) except NULL:
    """Refuse bools of other bytes than 0 and 1.

    Arrow's bool8 takes every byte but 0 for true, and array libraries have 0 and 1 alone: a 2 is not equal to True in
    NumPy, and JAX adds it as two.
    """
    cdef const uint8_t* bytes_of = <const uint8_t*> managed_data(managed)
    cdef int64_t index
    cdef uint8_t seen = 0
    if is_ready:
        for index in range(managed_count(managed)):
            seen |= bytes_of[index]
        if seen <= 1:
            return managed
    managed_release(managed)
    raise refusal(ConversionError, "arrow", "bool8", "of other bytes than 0 and 1" if is_ready else "on a device",
                  "would be no bools to any array library" if is_ready else "cannot be looked into",
                  hint_of(offer, "extension", 0))


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
