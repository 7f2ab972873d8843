"""Arrow's streams: chunks of one type, which are shared if only one has elements, and else gathered.

A stream's functions are called without the GIL, because they may wait for threads that need it.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from dlbridge._core.abi cimport DLDevice, kDLCPU
from dlbridge._core.arrow_abi cimport ARRAY_NAME, SCHEMA_NAME, STREAM_NAME, ArrowArray, ArrowArrayStream, ArrowSchema
from dlbridge._core.block cimport Managed, managed_release
from dlbridge._core.capsule cimport destroy_array, destroy_schema, new_struct
from dlbridge._core.pending cimport raise_pending
from dlbridge._core.place cimport gathered
from dlbridge._core.request cimport COPY_NEVER, Request
from dlbridge._core.sources.arrow_array cimport block_of, block_of_nothing, take_callback
from dlbridge._core.sources.arrow_schema cimport Description, read_schema, refused
from dlbridge._core.sources.offer cimport Offer

from dlbridge._core.sources.arrow_array import check_given
from dlbridge.errors import AGAIN, ConversionError, CopyRequiredError, DLBridgeError, refusal

ctypedef void (*ReleaseStream)(ArrowArrayStream*) noexcept nogil

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
            return gathered(chunks.blocks, chunks.count, request.peek)
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
