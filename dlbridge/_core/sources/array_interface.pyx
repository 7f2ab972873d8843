"""NumPy's array interface, in three forms.

``__array_interface__`` is version 3, whose ``data`` is an address, a buffer or absent. Version 2 has attributes in its
place. ``__array_struct__`` is a C structure in a capsule without a name.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetPointer, PyCapsule_IsValid

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport (
    PROTOCOL_ARRAY_INTERFACE,
    PROTOCOL_ARRAY_STRUCT,
    SWAPPED,
    Managed,
    managed_checked,
    managed_count,
    managed_data,
    managed_new,
    managed_own_object,
    managed_release,
    managed_set_row,
    managed_span,
    managed_take_bytes,
)
from dlbridge._core.dtypes cimport find_sized
from dlbridge._core.facts cimport COPIES
from dlbridge._core.layout cimport Span
from dlbridge._core.request cimport COPY_NEVER, Request
from dlbridge._core.sources.buffer cimport HeldBuffer
from dlbridge._core.sources.interface cimport new_from_interface, read_address, refuse_field
from dlbridge._core.sources.offer cimport Offer, hints, new_offer

from dlbridge.errors import REPORT, ConversionError, CopyRequiredError, refusal


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
    return unless_copied(managed, obj, offer) if request.copy == COPY_NEVER else managed


cdef Managed* unless_copied(Managed* managed, object obj, Offer offer) except? NULL:
    """With copy=False: refuse an interface that is made anew when it is asked for, after all other protocols."""
    try:
        copied = offer.known & COPIES or is_made_anew(managed, obj)
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
        return False            # another object has it, which this one stands for
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
    held = <HeldBuffer> HeldBuffer.__new__(HeldBuffer)
    try:
        PyObject_GetBuffer(data, &held.view, PyBUF_SIMPLE)
    except TypeError:
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "data", type(data).__qualname__,
                           "is neither a pair (address, read-only) nor a buffer", REPORT) from None
    except (BufferError, ValueError) as error:
        raise refuse_field(PROTOCOL_ARRAY_INTERFACE, "data", data, f"is a buffer with gaps, or has none now: {error}",
                           REPORT) from error
    if <PyObject*> held.view.obj != NULL:
        held.exporter = <object> held.view.obj
    return held


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
