"""NumPy's array interface, in three forms.

``__array_interface__`` is version 3, whose ``data`` is an address, a buffer or absent. Version 2 has attributes in its
place. ``__array_struct__`` is a C structure in a capsule without a name.
"""

from cpython.buffer cimport PyBUF_SIMPLE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_AsUnsignedLongLong, PyLong_Check
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.tuple cimport PyTuple_GET_ITEM

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport (
    PROTOCOL_ARRAY_INTERFACE, PROTOCOL_ARRAY_STRUCT, PROTOCOL_CUDA_ARRAY_INTERFACE, SWAPPED, Managed, Protocol,
    managed_checked, managed_count, managed_data, managed_new, managed_own_object, managed_release, managed_set_row,
    managed_span, managed_take_bytes, protocol_name,
)
from dlbridge._core.copies cimport is_watched, note_given_copy
from dlbridge._core.dtypes cimport find_sized, find_typestr
from dlbridge._core.layout cimport MAX_NDIM, Span
from dlbridge._core.request cimport COPY_NEVER, Request
from dlbridge._core.sources.buffer cimport HeldBuffer, held_buffer
from dlbridge._core.sources.offer cimport Offer, hints, new_offer

from dlbridge.errors import REPORT, ConversionError, CopyRequiredError, refusal, shown


cdef Offer offers(object holder, object facts, str attribute):
    if attribute == "__array_struct__":
        return new_offer("array_struct", acquire_struct, facts)
    if attribute == "__array_interface__":
        return new_offer("array_interface", acquire, facts)
    return new_offer("array_interface", acquire_attributes, facts) if hasattr(holder, "__array_shape__") else None


cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL:
    cdef object interface
    cdef Managed* managed
    try:
        interface = obj.__array_interface__
    except AttributeError:
        return NULL
    if not isinstance(interface, dict):
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "__array_interface__", type(interface).__qualname__,
                           "is not a dict", REPORT)
    managed = build(obj, interface if type(interface) is dict else dict(interface), (obj, interface))
    if request.copy == COPY_NEVER:
        return unless_copied(managed, obj, offer)
    return watched(managed, obj, offer) if is_watched() and not request.peek else managed


cdef Managed* watched(Managed* managed, object obj, Offer offer) except NULL:
    """Tell who watches of an interface that copies its memory each time."""
    try:
        copied = offer.copies or is_made_anew(managed, obj)
    except BaseException:
        managed_release(managed)
        raise
    return note_given_copy(managed, obj) if copied else managed


cdef Managed* unless_copied(Managed* managed, object obj, Offer offer) except? NULL:
    """With copy=False: refuse an interface that copies its memory each time, or leave that to the next protocol."""
    try:
        copied = offer.copies or is_made_anew(managed, obj)
    except BaseException:
        managed_release(managed)
        raise
    if not copied:
        return managed
    managed_release(managed)
    if offer.optional:
        return NULL
    raise refusal(CopyRequiredError, "array_interface", "copy", False,
                  f"but {type(obj).__qualname__} copies its memory each time that it is asked for", "pass copy=None")


cdef bint is_made_anew(const Managed* first, object obj) except -1:
    cdef Managed* second
    if not managed_count(first):
        return False
    try:
        interface = obj.__array_interface__
        second = build(obj, dict(interface), (obj, interface))
    except (MemoryError, RecursionError):
        raise
    except AttributeError:
        return False            # obj stands for another object, which has the interface
    except Exception:
        return True
    moved = managed_data(first) != managed_data(second)
    managed_release(second)
    return moved


cdef Managed* acquire_attributes(object obj, Offer offer, const Request* request) except? NULL:
    """Make a block of version 2, whose entries are attributes. The address is a string of hexadecimal digits."""
    interface = {}
    for field in ("shape", "typestr", "data", "strides", "mask", "offset"):
        value = getattr(obj, f"__array_{field}__", None)
        if value is not None:
            interface[field] = value
    data = interface.get("data")
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], str):
        try:
            interface["data"] = (int(data[0], 16), data[1])
        except ValueError:
            raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "data", data, "is no hexadecimal address",
                               REPORT) from None
    return build(obj, interface, (obj, interface))


cdef Managed* build(object obj, dict interface, object owner) except NULL:
    cdef Managed* managed
    cdef HeldBuffer buffer
    cdef void* address
    cdef bint read_only
    # All entries are taken before any of them is looked into. Looking into one may run the producer's code, which may
    # change the dictionary.
    shape, typestr, strides = interface.get("shape"), interface.get("typestr"), interface.get("strides")
    data, mask = interface.get("data"), interface.get("mask")
    if mask is not None:
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "mask", type(mask).__qualname__,
                           "would be dropped, and masked values would pass for real ones",
                           "fill it first")
    if not isinstance(data, tuple):
        offset = interface.get("offset")
        buffer = bytes_of(obj if data is None else data)
        managed = new_from_interface(PROTOCOL_ARRAY_INTERFACE, shape, typestr, strides)
        return place_on_buffer(managed, buffer, offset, owner)
    read_address(PROTOCOL_ARRAY_INTERFACE, data, &address, &read_only)
    managed = new_from_interface(PROTOCOL_ARRAY_INTERFACE, shape, typestr, strides)
    managed.abi.dl_tensor.data = address
    if read_only:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    managed_own_object(managed, owner)
    return managed_checked(managed)


cdef Managed* place_on_buffer(Managed* managed, HeldBuffer buffer, object offset, object owner) except NULL:
    """Put a block on the memory of a buffer, which an interface without an address uses.

    It is the buffer of the data entry, or of the object itself.
    """
    try:
        managed_own_object(managed, (owner, buffer))
        set_buffer(managed, &buffer.view, 0 if offset is None else offset)
    except BaseException:
        managed_release(managed)
        raise
    managed = managed_checked(managed)
    check_within(managed, &buffer.view)
    return managed


cdef HeldBuffer bytes_of(object data):
    """The bytes of a buffer. No memoryview is made, as it would believe what the exporter says of shape and strides."""
    try:
        return held_buffer(data, PyBUF_SIMPLE)
    except TypeError:
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "data", type(data).__qualname__,
                           "is neither a pair (address, read-only) nor a buffer", REPORT) from None
    except (BufferError, ValueError) as error:
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "data", data, f"is a buffer with gaps, or has none now: {error}",
                           REPORT) from error


cdef int set_buffer(Managed* managed, Py_buffer* view, object offset) except -1:
    """Take the memory of a buffer from ``offset`` bytes on; it stays exported while the memory is in use."""
    if view.buf == NULL and view.len:
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "data", "NULL", f"is no memory for {view.len} bytes", REPORT)
    cdef int overflow = 0
    # The offset is converted before it is compared, since a subclass of int may define its own comparisons.
    cdef long long start = PyLong_AsLongLongAndOverflow(offset, &overflow) if PyLong_Check(offset) else -1
    if overflow or not 0 <= start <= view.len:
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "offset", offset, f"is not within the buffer of {view.len} bytes",
                           REPORT)
    managed.abi.dl_tensor.data = <char*> view.buf + start
    if view.readonly:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY


cdef int check_within(Managed* managed, Py_buffer* view) except -1:
    """Refuse a shape that reaches outside of the buffer, whose end is known."""
    cdef Py_ssize_t start = <char*> managed.abi.dl_tensor.data - <char*> view.buf
    cdef Py_ssize_t low, high
    cdef Span span = managed_span(managed)
    if managed_count(managed) and (start + span.low_bytes < 0 or start + span.high_bytes > view.len):
        low, high = start + span.low_bytes, start + span.high_bytes
        managed_release(managed)
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "shape", f"bytes {low} to {high}",
                           f"reach outside of the buffer of {view.len} bytes", REPORT)


# ---- __array_struct__ ------------------------------------------------------------------------------------------------

cdef Managed* acquire_struct(object obj, Offer offer, const Request* request) except? NULL:
    try:
        capsule = obj.__array_struct__
    except AttributeError:
        return NULL
    try:
        return block_of_struct(obj, capsule)
    except BaseException:
        # The capsule is released while the error is caught. Its destructor may be Python code, which would lose a
        # pending error.
        capsule = None
        raise


cdef Managed* block_of_struct(object obj, object capsule) except NULL:
    cdef PyArrayInterface* interface
    cdef Managed* managed
    cdef int row
    if not PyCapsule_CheckExact(capsule) or not PyCapsule_IsValid(capsule, NULL):
        raise _refused("__array_struct__", type(capsule).__qualname__, "is not a capsule without a name")
    interface = <PyArrayInterface*> PyCapsule_GetPointer(capsule, NULL)
    if interface.two != 2:
        raise _refused("two", interface.two, "is not 2, so this is another structure")
    row = find_sized(interface.typekind, interface.itemsize)
    if row < 0:
        kind = chr(<unsigned char> interface.typekind)
        raise refusal(ConversionError, "array_struct", "typekind", f"{kind!r} of {interface.itemsize} bytes",
                      "has no DLPack type", hints().for_struct(kind, interface.flags & NPY_ARRAY_NOTSWAPPED))
    if interface.nd and interface.shape == NULL:
        raise _refused("shape", "NULL", f"has no extents for nd {interface.nd}")
    owner = (obj, capsule)      # made first: if that fails, there is no block yet that could be lost
    managed = managed_new(PROTOCOL_ARRAY_STRUCT, interface.nd)
    managed.abi.dl_tensor.data = interface.data
    managed_set_row(managed, row)
    managed_take_bytes(managed, <const Py_ssize_t*> interface.shape, <const Py_ssize_t*> interface.strides)
    if not interface.flags & NPY_ARRAY_WRITEABLE:
        managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY
    if not interface.flags & NPY_ARRAY_NOTSWAPPED and interface.itemsize > 1:
        managed.marks |= SWAPPED
    managed_own_object(managed, owner)
    return managed_checked(managed)


cdef object _refused(str field, object value, str wrong):
    return refusal(ConversionError, "array_struct", field, value, wrong, REPORT)


# ---- the entries, of __cuda_array_interface__ too --------------------------------------------------------------------

# The entries are not trusted: each is read once, checked for its type, and converted before it is used.

cdef object refuse_field(Protocol protocol, object field, object value, object wrong, object hint):
    return refusal(ConversionError, protocol_name(protocol), f"'{field}'", shown(value), wrong, hint)


cdef Managed* new_from_interface(Protocol protocol, object shape, object typestr, object strides) except NULL:
    """A block with shape, dtype and strides. It has neither an address nor an owner yet, and is not yet validated."""
    cdef Managed* managed
    cdef Py_ssize_t extents[MAX_NDIM]
    cdef Py_ssize_t strides_bytes[MAX_NDIM]
    cdef bint swapped = False
    cdef int row = read_typestr(protocol, typestr, &swapped)
    cdef Py_ssize_t ndim = read_integers(protocol, "shape", shape, extents)
    if strides is not None and read_integers(protocol, "strides", strides, strides_bytes) != ndim:
        raise refuse_field(protocol, "strides", strides, f"is not a tuple of {ndim} integers, nor None", REPORT)
    managed = managed_new(protocol, ndim)
    managed_set_row(managed, row)
    managed_take_bytes(managed, extents, strides_bytes if strides is not None else NULL)
    if swapped:
        managed.marks |= SWAPPED
    return managed


cdef int read_typestr(Protocol protocol, object typestr, bint* swapped) except -1:
    cdef int row
    if not isinstance(typestr, str):
        raise refuse_field(protocol, "typestr", typestr, "is not a string", REPORT)
    # A subclass of str may give a different answer each time it is asked.
    typestr = typestr if type(typestr) is str else str.__str__(typestr)
    row = find_typestr(typestr, swapped)
    if row < 0:
        raise refuse_field(protocol, "typestr", typestr, "has no DLPack type",
                           "convert it to a type of numbers first" if protocol == PROTOCOL_CUDA_ARRAY_INTERFACE
                           else hints().for_exporter(typestr[1:2], typestr[:1]))
    return row


cdef Py_ssize_t read_integers(Protocol protocol, str field, object given, Py_ssize_t* out) except -1:
    """Read a tuple of integers of 64 bits, and return how many there are. ``out`` has room for MAX_NDIM."""
    cdef tuple values
    cdef PyObject* value
    cdef Py_ssize_t index
    cdef int overflow = 0
    if not isinstance(given, tuple):
        raise refuse_field(protocol, field, given, "is not a tuple", REPORT)
    values = given if type(given) is tuple else tuple(given)
    if len(values) > MAX_NDIM:
        managed_new(protocol, len(values))      # raises the error
    for index in range(len(values)):
        value = PyTuple_GET_ITEM(values, index)
        if not PyLong_Check(<object> value):
            raise refuse_field(protocol, field, values, "has an entry that is no integer", REPORT)
        out[index] = PyLong_AsLongLongAndOverflow(<object> value, &overflow)
        if overflow:
            raise refuse_field(protocol, field, values, "has an entry beyond 64 bits", REPORT)
    return len(values)


cdef int read_address(Protocol protocol, object data, void** address, bint* read_only) except -1:
    """Read the pair (address, read-only)."""
    if not isinstance(data, tuple) or len(<tuple> data) != 2 or not PyLong_Check((<tuple> data)[0]):
        raise refuse_field(protocol, "data", data, "is not a pair (address, read-only)", REPORT)
    try:
        address[0] = <void*> PyLong_AsUnsignedLongLong((<tuple> data)[0])
    except OverflowError:
        raise refuse_field(protocol, "data", data, "is no address of 64 bits", REPORT) from None
    read_only[0] = (<tuple> data)[1]
