"""An array of Arrow: its schema, its values, its offsets, and its bits of validity.

Lists of one length, and lists of them, are axes. So are those of a tensor type (``arrow.fixed_shape_tensor``, and a few
of libraries), which says the shape of its elements.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, strcmp

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, DLDevice, DLTensor
from dlbridge._core.arrow_abi cimport ARRAY_NAME, SCHEMA_NAME, ArrowArray, ArrowSchema
from dlbridge._core.atomic cimport load_pointer, replace_pointer
from dlbridge._core.block cimport (
    OWNS_NOTHING, OWNS_WRAPPED, PROTOCOL_ARROW, Managed, Wrapped, integers, managed_checked, managed_count,
    managed_data, managed_new, managed_own, managed_own_object, managed_release, managed_set_row, release_foreign,
)
from dlbridge._core.dtypes cimport find_arrow, find_name, get_row, row_name
from dlbridge._core.late cimport load_module
from dlbridge._core.layout cimport LARGEST_SPAN, MAX_NDIM, add_overflows, fill_compact, multiply_overflows
from dlbridge._core.sources.offer cimport Offer, hints

from dlbridge.errors import REPORT, ConversionError, refusal

cdef extern from *:
    int popcount "__builtin_popcount"(unsigned int bits) noexcept nogil

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()


# The elements of an array that belong to the result.
ctypedef struct Range:
    const ArrowArray* array
    int64_t first               # in the array's buffers
    int64_t count


# An array that was moved out of its capsule. It is held for as long as its memory is in use.
ctypedef struct Held:
    Wrapped wrapped             # first: release_wrapped() finds the struct by it. It has no owner of its own
    ArrowArray array


ctypedef void (*ReleaseArray)(ArrowArray*) noexcept nogil


cdef Managed* block_of(
    ArrowArray* array, object lender, const ArrowDescription* description, DLDevice device, bint is_ready, Offer offer,
) except NULL:
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


cdef Managed* block_of_nothing(const ArrowDescription* description) except NULL:
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


cdef void fill(Managed* managed, const ArrowDescription* description, int64_t length, const Range* values) noexcept:
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
    const ArrowArray* array, const ArrowDescription* description, bint is_ready, Range* ranges,
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
    cdef Range values
    cdef int64_t end = 0
    cdef bint overflow = multiply_overflows(lists.count, length, &values.count)
    values.array = lists.array.children[0]
    values.first = 0
    if not offset_bytes:
        overflow = overflow or multiply_overflows(lists.first, length, &values.first)
    elif lists.count:
        check_offsets(lists, length, offset_bytes, is_ready)
        values.first = offset_at(lists, 0, offset_bytes)
    if overflow or values.first < 0 or add_overflows(values.first, values.count, &end) or end > values.array.length or (
            add_overflows(values.first, values.array.offset, &values.first)):
        raise refused("length", values.array.length, f"has not the values of {lists.count} lists of {length}")
    return values


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


cdef Managed* without_nulls(
    Managed* managed, const ArrowDescription* description, const Range* ranges, bint is_ready, Offer offer,
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
    """How many of the elements are null, or -1 if that cannot be found out. The array may have more elements."""
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


cdef tuple pair_of(object answer, str method, const char* name):
    if (not isinstance(answer, tuple) or len(<tuple> answer) != 2
            or not PyCapsule_IsValid((<tuple> answer)[0], SCHEMA_NAME)
            or not PyCapsule_IsValid((<tuple> answer)[1], name)):
        raise refused(method, type(answer).__qualname__,
                      f"is not a pair of capsules, {SCHEMA_NAME.decode()} and {name.decode()}")
    return <tuple> answer


# ---- what another library is to read ---------------------------------------------------------------------------------

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


# ---- schemas ---------------------------------------------------------------------------------------------------------

EXTENSION_NAME, EXTENSION_TEXT = b"ARROW:extension:name", b"ARROW:extension:metadata"
UNKNOWN = -1                            # the length of lists whose type does not say it


cdef object imported = None


cdef object tensor_types():
    """libraries/tensor_types, which every array of an extension type is looked up in."""
    global imported
    if imported is None:
        imported = load_module("dlbridge.libraries.tensor_types")
    return imported


cdef int read_schema(const ArrowSchema* schema, Offer offer, ArrowDescription* out) except -1:
    check_schema(schema)
    out.levels = 0
    if schema.metadata == NULL and schema.dictionary == NULL and find_arrow(schema.format) >= 0:
        out.row, out.ndim = find_arrow(schema.format), 0        # numbers, as most columns are
        return 0
    axes = tensor_axes(schema, offer)
    while find_list(schema, axes is not None, out):
        if out.levels == MAX_NDIM - 1:
            raise refused("format", "+", f"is that of a list in {MAX_NDIM - 1} others")
        if (axes is None or out.levels) and extension_of(schema):
            raise refuse_extension(extension_of(schema), "lists are their storage alone", offer, out.levels)
        schema = only_child(schema)
        out.levels += 1
    out.row = row_of(schema, offer, out.levels)
    if axes is None:
        return describe_axes(integers(out.lengths, out.levels, 1), range(out.levels), out)
    shape, order, count = axes
    check_lengths(shape, count, out)
    return describe_axes(shape, order, out)


cdef int check_schema(const ArrowSchema* schema) except -1:
    if schema.release == NULL or schema.format == NULL:
        raise refused("release" if schema.release == NULL else "format", "NULL", "is that of no schema")


cdef object tensor_axes(const ArrowSchema* schema, Offer offer):
    """The shape of each element of a tensor type, and the order of its axes; None for another type."""
    name = extension_of(schema)
    if not name:
        return None
    text = text_with(schema, EXTENSION_TEXT)
    try:
        return tensor_types().axes_of(name, text)
    except Exception as error:
        raise refusal(ConversionError, "arrow", EXTENSION_TEXT.decode(), repr(text), f"is no shape of {name.decode()}",
                      hint_of(offer, "extension", 0)) from error


cdef bint find_list(const ArrowSchema* schema, bint is_tensor, ArrowDescription* out) except -1:
    """Whether the elements are lists of one length. The length is noted; of a tensor type, the lists may not say it."""
    if schema.dictionary != NULL or schema.format[0] != b"+":
        return False
    text = (<bytes> schema.format).decode("utf-8", "replace")
    out.offset_bytes[out.levels] = 0
    if text.startswith("+w:"):
        digits = text.removeprefix("+w:")
        if not (digits.isascii() and digits.isdecimal()):
            raise refused("format", repr(text), "has no length")
        out.lengths[out.levels] = int(digits) if len(digits) <= 10 else LARGEST_SPAN
        if out.lengths[out.levels] > INT32_MAX:
            raise refused("format", repr(text), "has a length beyond the 32 bits of Arrow's")
        return True
    out.lengths[out.levels] = UNKNOWN
    out.offset_bytes[out.levels] = {"+l": 4, "+L": 8}.get(text, 0)
    return is_tensor and out.offset_bytes[out.levels]


cdef const ArrowSchema* only_child(const ArrowSchema* schema) except NULL:
    if schema.n_children != 1 or schema.children == NULL or schema.children[0] == NULL:
        raise refused("n_children", schema.n_children, "is not 1, the values of the lists")
    check_schema(schema.children[0])
    return schema.children[0]


cdef int check_lengths(list shape, object count, ArrowDescription* out) except -1:
    """Compare the lists with the shape of a tensor type: one list has all values, or each axis has lists."""
    cdef int32_t level
    lengths = shape if out.levels == len(shape) else (count,)
    if len(lengths) != out.levels:
        raise refused("ARROW:extension:metadata", shape, f"is no shape of {out.levels} lists in each other")
    for level in range(out.levels):
        if out.lengths[level] not in (UNKNOWN, lengths[level]) or lengths[level] >= LARGEST_SPAN:
            raise refused("ARROW:extension:metadata", shape, f"is no shape of lists of {out.lengths[level]} values")
        out.lengths[level] = lengths[level]


cdef int describe_axes(object shape, object order, ArrowDescription* out) except -1:
    cdef int64_t[MAX_NDIM] extents, strides
    cdef int64_t count = 1
    cdef int32_t axis, place
    if len(shape) >= MAX_NDIM:
        raise refused("format", shape, "is the shape of more axes than any array has")
    out.ndim = <int32_t> len(shape)
    for axis in range(out.ndim):
        extents[axis] = min(shape[axis], LARGEST_SPAN)
        if multiply_overflows(count, max(1, extents[axis]), &count) or count >= LARGEST_SPAN:
            raise refused("format", shape, "is the shape of more values than any array has")
    fill_compact(out.ndim, extents, strides)
    for axis in range(out.ndim):
        place = order[axis]
        out.shape[axis], out.strides[axis] = extents[place], strides[place]


# ---- the values ------------------------------------------------------------------------------------------------------

cdef int row_of(const ArrowSchema* schema, Offer offer, int32_t levels) except -1:
    """The row of a schema's dtype, or an error. A type that DLPack has needs neither children nor a dictionary."""
    row = find_arrow(schema.format)
    if row >= 0 and schema.dictionary == NULL:
        return row if schema.metadata == NULL else row_of_extension(schema, row, offer, levels)
    text = (<bytes> schema.format).decode("utf-8", "replace")
    if schema.dictionary != NULL:
        raise refusal(ConversionError, "arrow", "dictionary", repr(text), "are indices of other values",
                      hint_of(offer, "dictionary", levels))
    name = extension_of(schema)
    if name:
        same = tensor_types().type_of_bits(name, text)
        if same is not None:
            return find_name(same)
        raise refuse_extension(name, f"{text!r} is their storage alone", offer, levels)
    beginning, wrong = hints().unknown_format(text)
    raise refusal(ConversionError, "arrow", "format", repr(text), wrong, hint_of(offer, beginning, levels))


cdef int row_of_extension(const ArrowSchema* schema, int row, Offer offer, int32_t levels) except -1:
    """The row of a type that may be more than its numbers: a period, a number with a fixed point.

    CDataInterface, "Extension arrays": a reader that does not know the type sees its numbers alone.
    """
    name = extension_of(schema)
    if not name:
        return row
    if name == b"arrow.bool8" and row == find_name("int8"):
        return find_name("bool")
    raise refuse_extension(name, f"{row_name(row)} is their storage alone", offer, levels)


cdef object refuse_extension(bytes name, str storage, Offer offer, int32_t levels):
    # pyarrow knows the standard's types, and takes the storage of all others for the values.
    known = offer.facts.is_of_a_library() or name.startswith(b"arrow.")
    return refusal(ConversionError, "arrow", EXTENSION_NAME.decode(), repr(name.decode("utf-8", "replace")),
                   f"is what its values are, and {storage}",
                   hint_of(offer, "extension" if known else "unknown extension", levels))


# ---- metadata: a number of pairs, each text after its length ---------------------------------------------------------

cdef bytes extension_of(const ArrowSchema* schema):
    """The name of an extension type, or None."""
    return text_with(schema, EXTENSION_NAME)


cdef bytes text_with(const ArrowSchema* schema, bytes wanted):
    cdef const char* at = schema.metadata
    cdef const char* key
    cdef const char* value
    cdef int32_t length, value_length
    if at == NULL:
        return None
    for _ in range(take_length(&at)):
        key = take_text(&at, &length)
        value = take_text(&at, &value_length)
        if length == len(wanted) and memcmp(key, <const char*> wanted, length) == 0:
            return value[:value_length]
    return None


cdef const char* take_text(const char** at, int32_t* length) except NULL:
    length[0] = take_length(at)
    text = at[0]
    at[0] += length[0]
    return text


cdef int32_t take_length(const char** at) except -1:
    cdef int32_t length
    memcpy(&length, at[0], sizeof(length))      # it is not aligned
    if length < 0:
        raise refused("metadata", length, "is no length")
    at[0] += sizeof(length)
    return length


# ---- errors ----------------------------------------------------------------------------------------------------------

cdef str hint_of(Offer offer, str field, int32_t levels):
    """The hint for an error about values in ``levels`` lists, which the code in the hint flattens first."""
    return hints().for_arrow(offer.facts, field, levels, offer.is_stream)


cdef object refused(str field, object value, str wrong):
    return refusal(ConversionError, "arrow", field, value, wrong, REPORT)
