"""Arrays that are several arrays, taken apart and looked at before a library trusts their indices.

Most libraries believe indices: a kernel would read or write out of bounds by one that is too large. So each is looked
at once on the host, without the GIL, and the lengths of all parts everywhere.
"""

cimport cython

from operator import index
from sys import byteorder

from cpython.long cimport PyLong_AsLongAndOverflow
from libc.stdint cimport int32_t, int64_t

from dlbridge._core.abi cimport DLDevice, kDLCPU
from dlbridge._core.block cimport BYTE_STRIDES, SWAPPED, Managed, managed_data, managed_release, managed_shape
from dlbridge._core.devices.table cimport device_name, same_device
from dlbridge._core.dtypes cimport DTypeRow, get_row, row_name
from dlbridge._core.request cimport NOTHING_ASKED, Request
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type

import numpy as np

from dlbridge.errors import ConversionError, DLBridgeError, refusal, shown
from dlbridge.libraries.library import PARTS

cdef extern from "dlbridge/_core/indices.h" nogil:
    # The place of the first that is wrong, or -1.
    int64_t outside "dlbridge_outside"(
        const void* values, int item_bytes, bint is_signed, int64_t count, int64_t stride, int64_t bound) noexcept
    int64_t falling "dlbridge_falling"(const void* values, int item_bytes, int64_t count, int64_t stride) noexcept
    int64_t integer "dlbridge_integer"(const void* value, int item_bytes, bint is_signed) noexcept

cdef int64_t MOST = <int64_t> 1 << 62
cdef int64_t FEW = 1024         # values that are looked at in less time than releasing the GIL takes
cdef str DAMAGED = "the array is damaged: make it again"
cdef Request LOOKING = NOTHING_ASKED
LOOKING.detach = LOOKING.peek = True


@cython.final
@cython.no_gc
@cython.freelist(8)
@cython.auto_pickle(False)
cdef class Seen:
    def __dealloc__(self):
        if self.managed != NULL:
            managed_release(self.managed)


@cython.final
@cython.no_gc
@cython.freelist(2)
@cython.auto_pickle(False)
cdef class Apart:
    pass


cdef Apart taken_apart(str form, str coordinates, object shape, list parts, str beyond):
    cdef Apart apart = Apart.__new__(Apart)
    cdef tuple names = PARTS[form]
    apart.form, apart.is_compact, apart.copied = form, True, ""
    # Of an array without a mask, the errors are its own.
    apart.data = seen(form, None if form == "masked" and parts[1] is None else names[0], parts[0])
    apart.data.name = names[0]
    if form == "ragged":
        apart.indices = [indices_seen(form, names[1], offsets) for offsets in parts[1]]
        check_ragged(apart)
        return apart
    if form == "masked":
        apart.indices = [] if parts[1] is None else [seen(form, names[1], parts[1])]
        check_mask(apart)
        return apart
    apart.shape = checked_shape(form, shape)
    if form == "coo":
        each = parts[1] if isinstance(parts[1], tuple) else (parts[1],)
        apart.indices = [indices_seen(form, names[1], axis) for axis in each]
        apart.count = length(apart.data)
        check_coordinates(apart, coordinates, beyond)
    else:
        apart.indices = [indices_seen(form, names[1], parts[1]), indices_seen(form, names[2], parts[2])]
        check_compressed(apart, beyond)
    return apart


cdef int check_device(Seen part, Seen data) except -1:
    cdef DLDevice* device = &part.managed.abi.dl_tensor.device
    if not same_device(device, &data.managed.abi.dl_tensor.device):
        raise refusal(ConversionError, part.form, part.name, f"on {device_name(device[0])}",
                      "is on another device than the data", "move its parts to one device")
    return 0


cdef tuple checked_shape(str form, object shape):
    """A shape whose extents are integers that can be reckoned with."""
    if type(shape) is tuple and are_extents(<tuple> shape):
        return shape
    try:
        whole = tuple([index(extent) for extent in shape])
    except TypeError:
        whole = (None,)
    if are_extents(whole):
        return whole
    raise refusal(ConversionError, form, "shape", shown(shape), "is no tuple of extents below 2**62", DAMAGED)


cdef bint are_extents(tuple shape) except -1:
    cdef int overflow = 0
    cdef int64_t extent
    for each in shape:
        if type(each) is not int:
            return False
        extent = PyLong_AsLongAndOverflow(each, &overflow)
        if overflow or not 0 <= extent < MOST:
            return False
    return True


cdef Seen seen(str form, str name, object array):
    cdef Seen made = Seen.__new__(Seen)
    made.array, made.form, made.name = array, form, name
    try:
        made.managed = acquire_by(offers_for_type(type(array)), array, &LOOKING)
    except DLBridgeError as error:
        if name is None:
            raise
        raise in_part(error, form, name) from error
    made.swapped = made.managed.marks & SWAPPED
    if not made.managed.abi.dl_tensor.ndim and form != "masked":
        raise refusal(ConversionError, form, name, "()", "is the shape of a number", DAMAGED)
    return made


cdef Seen indices_seen(str form, str name, object array):
    """Indices whose values can be read as they are."""
    cdef Seen made = seen(form, name, array)
    cdef const Managed* managed = made.managed
    kind = get_row(managed.row).kind
    if kind not in (c"i", c"u") or get_row(managed.row).subbyte:
        raise refusal(ConversionError, form, name, row_name(managed.row), "is no type of indices", DAMAGED)
    if is_on_host(made) and (managed.marks & (SWAPPED | BYTE_STRIDES)
                             or <size_t> managed_data(managed) % get_row(managed.row).item_bytes):
        native = np.asarray(array)
        swapped = made.swapped
        made = seen(form, name, native.astype(native.dtype.newbyteorder("=")))
        made.array, made.swapped = array, swapped
    return made


cdef object in_part(object error, str form, str name):
    return refusal(type(error), form, "part", name, error.reason, error.hint)


cdef bint is_on_host(Seen seen) noexcept:
    """Whether the values can be looked at; pinned and managed memory would have to be waited for."""
    return seen.managed.abi.dl_tensor.device.device_type == kDLCPU


cdef inline int64_t length(Seen seen, int32_t axis=0) noexcept:
    return seen.managed.abi.dl_tensor.shape[axis]


cdef object wrong(Seen seen, object value, str text):
    return refusal(ConversionError, seen.form, seen.name, value, text, DAMAGED)


# ---- the kinds of forms ----------------------------------------------------------------------------------------------

cdef int check_compressed(Apart apart, str beyond) except -1:
    """Check data, indices and offsets of compressed rows, columns, or blocks of them."""
    cdef Seen indices = apart.indices[0]
    cdef Seen offsets = apart.indices[1]
    cdef int64_t lines, across, first
    cdef Seen part
    cdef int by_column = apart.form in ("csc", "bsc")
    if len(apart.shape) < 2:
        raise refusal(ConversionError, apart.form, "shape", apart.shape, "is not of two axes", "pass x.reshape(1, -1)")
    for part in (indices, offsets):
        check_device(part, apart.data)
        if part.managed.abi.dl_tensor.ndim != 1:
            raise wrong(part, managed_shape(part.managed), "is not of one axis")
    lines, across = checked_extents(apart, by_column)
    if length(offsets) != lines + 1:
        raise wrong(offsets, managed_shape(offsets.managed),
                    f"is not the shape for {lines} {'columns' if by_column else 'rows'}, which is {(lines + 1,)}")
    if length(indices) != length(apart.data):
        raise wrong(indices, managed_shape(indices.managed), f"is not the shape for {length(apart.data)} elements")
    apart.count = length(indices)
    if not is_on_host(offsets):
        apart.count = -1
        return 0
    first, apart.count = checked_offsets(offsets, length(indices))
    if first:
        raise wrong(offsets, f"{first} at 0", "is not 0")
    if beyond is not None and is_on_host(indices):
        check_values(indices, 0, indices.managed.abi.dl_tensor.strides[0], apart.count, across,
                     "of a column" if by_column else "of a row", beyond)
    return 0


cdef (int64_t, int64_t) checked_extents(Apart apart, int by_column) except *:
    """How many lines are compressed, and how many are across them, in blocks, once the shape of the data fits them."""
    cdef bint blocks = apart.form[0] == u"b"
    # Most matrices are as plain as this.
    if not blocks and apart.data.managed.abi.dl_tensor.ndim == 1 and len(apart.shape) == 2:
        apart.indexed = 2
        return apart.shape[by_column], apart.shape[1 - by_column]
    cdef tuple of_data = managed_shape(apart.data.managed)
    cdef tuple block = of_data[1:3] if blocks else (1, 1)
    if len(block) != 2 or not all(block) or apart.shape[0] % block[0] or apart.shape[1] % block[1]:
        raise wrong(apart.data, of_data, f"is not the shape of blocks in {apart.shape}")
    check_dense_axes(apart, 2, 3 if blocks else 1)
    return (apart.shape[by_column] // block[by_column], apart.shape[1 - by_column] // block[1 - by_column])


cdef int check_dense_axes(Apart apart, int64_t indexed, int before) except -1:
    """Check that an element has the extents that are left over: of the whole and, behind so many axes, of the data."""
    cdef tuple of_data = managed_shape(apart.data.managed)
    apart.indexed = indexed
    if of_data[before:] != apart.shape[indexed:]:
        raise wrong(apart.data, of_data, f"is not the shape of elements of {apart.shape}")
    return 0


cdef int check_coordinates(Apart apart, str coordinates, str beyond) except -1:
    """Check coordinates: an array for each axis, or one with their rows, or with their columns."""
    cdef Seen part
    cdef bint in_one = coordinates != "each"
    cdef int32_t along = coordinates == "rows"      # the elements
    cdef int64_t axes = len(apart.indices), axis
    for part in apart.indices:
        check_device(part, apart.data)
        if part.managed.abi.dl_tensor.ndim != 1 + in_one or length(part, along) != length(apart.data):
            raise wrong(part, managed_shape(part.managed), f"is not the shape for {length(apart.data)} elements")
        axes = length(part, 1 - along) if in_one else axes
    if axes > len(apart.shape):
        raise wrong(apart.indices[0], axes, f"is more than the axes of {apart.shape}")
    check_dense_axes(apart, axes, 1)
    for axis in range(0 if beyond is None else axes):
        part = apart.indices[0 if in_one else axis]
        if is_on_host(part):
            strides = part.managed.abi.dl_tensor.strides
            check_values(part, axis * strides[1 - along] if in_one else 0, strides[along], length(part, along),
                         apart.shape[axis], f"of axis {axis}", beyond)
    return 0


cdef int check_ragged(Apart apart) except -1:
    """Check the offsets of each ragged axis, and find the shape, which has None for those."""
    cdef Seen part
    cdef int64_t first, last, most
    axes = len(apart.indices)
    if not axes:
        raise refusal(ConversionError, apart.form, "offsets", (), "are of no axis", DAMAGED)
    for axis, part in enumerate(apart.indices):
        if axes > 1:
            part.name = f"{part.name}[{axis}]"
        check_device(part, apart.data)
        if part.managed.abi.dl_tensor.ndim != 1 or not length(part):
            raise wrong(part, managed_shape(part.managed), "is not the shape of offsets, of which there is a first")
    for axis, part in enumerate(apart.indices):
        most = length(apart.data) if axis + 1 == axes else length(apart.indices[axis + 1]) - 1
        if is_on_host(part):
            first, last = checked_offsets(part, most)
            apart.is_compact &= first == 0 and last == most
    apart.shape = (length(apart.indices[0]) - 1, *(None,) * axes, *managed_shape(apart.data.managed)[1:])
    apart.indexed, apart.count = len(apart.shape), -1
    return 0


cdef int check_mask(Apart apart) except -1:
    cdef Seen mask
    apart.shape, apart.count = managed_shape(apart.data.managed), -1
    apart.indexed = len(apart.shape)
    if not apart.indices:
        return 0
    mask = apart.indices[0]
    check_device(mask, apart.data)
    if get_row(mask.managed.row).kind != c"b":
        raise refusal(ConversionError, apart.form, mask.name, row_name(mask.managed.row), "is no type of masks, which "
                      "is bool", DAMAGED)
    if managed_shape(mask.managed) != apart.shape:
        raise wrong(mask, managed_shape(mask.managed), f"is not the shape of the values, {apart.shape}")
    return 0


# ---- values ----------------------------------------------------------------------------------------------------------

cdef int check_values(
    Seen seen, int64_t start, int64_t stride, int64_t count, int64_t bound, str of_what, str beyond,
) except -1:
    """Check that indices, which begin so many elements after the first, are from 0 to bound - 1."""
    cdef const DTypeRow* row = get_row(seen.managed.row)
    cdef const char* values = managed_data(seen.managed) + start * row.item_bytes
    cdef int64_t place
    if count <= FEW:
        place = outside(values, row.item_bytes, row.kind == c"i", count, stride, bound)
    else:
        with nogil:
            place = outside(values, row.item_bytes, row.kind == c"i", count, stride, bound)
    if place >= 0:
        raise refusal(ConversionError, seen.form, seen.name, f"{value_at(seen, start + place * stride)} at {place}",
                      f"is none of the {bound} indices {of_what}", beyond)
    return 0


cdef (int64_t, int64_t) checked_offsets(Seen seen, int64_t most) except *:
    """The first offset, and the last, once it is known that all rise, and are within ``most`` elements."""
    cdef const DTypeRow* row = get_row(seen.managed.row)
    cdef const char* values = managed_data(seen.managed)
    cdef int64_t count = length(seen), stride = seen.managed.abi.dl_tensor.strides[0], place, first, last
    if count <= FEW:
        place = falling(values, row.item_bytes, count, stride)
    else:
        with nogil:
            place = falling(values, row.item_bytes, count, stride)
    if place >= 0:
        raise wrong(seen, f"{value_at(seen, place * stride)} at {place}", "is below the offset before")
    first = integer(values, row.item_bytes, row.kind == c"i")
    last = integer(values + (count - 1) * stride * row.item_bytes, row.item_bytes, row.kind == c"i")
    if not 0 <= last <= most:           # then none is outside: they rise, as unsigned numbers
        place = 0 if not 0 <= first <= most else count - 1
        raise wrong(seen, f"{value_at(seen, place * stride)} at {place}", f"is beyond the {most} elements")
    return first, last


cdef object value_at(Seen seen, int64_t element):
    cdef const DTypeRow* row = get_row(seen.managed.row)
    cdef const char* value = managed_data(seen.managed) + element * row.item_bytes
    return int.from_bytes(value[:row.item_bytes], byteorder, signed=row.kind == c"i")
