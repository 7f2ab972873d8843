"""Arrow's schemas: what the elements of an array are, and which axes they have.

Lists of one length, and lists of them, are axes. So are those of a tensor type (``arrow.fixed_shape_tensor``, and a few
of libraries), which says the shape of its elements.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.string cimport memcmp, memcpy

from dlbridge._core.arrow_abi cimport ArrowSchema
from dlbridge._core.block cimport integers
from dlbridge._core.dtypes cimport find_arrow, find_name, row_name
from dlbridge._core.late cimport load_module
from dlbridge._core.layout cimport LARGEST_SPAN, MAX_NDIM, fill_compact, multiply_overflows
from dlbridge._core.sources.offer cimport Offer, hints

from dlbridge.errors import REPORT, ConversionError, refusal

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
    """The hint for an error about values in so many lists, which the code in it flattens first."""
    return hints().for_arrow(offer.facts, field, levels, offer.is_stream)


cdef object refused(str field, object value, str wrong):
    return refusal(ConversionError, "arrow", field, value, wrong, REPORT)
