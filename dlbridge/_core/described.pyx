"""Memory as a user describes it: a dtype, and a shape."""

from operator import index

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY
from dlbridge._core.block cimport (
    OWNS_BASE,
    SWAPPED,
    Managed,
    Protocol,
    managed_checked,
    managed_nbytes,
    managed_new,
    managed_own,
    managed_own_storage,
    managed_release,
    managed_set_row,
    managed_shape,
    managed_strides,
)
from dlbridge._core.conversion cimport deliver_out_of_line
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport has_streams, is_host
from dlbridge._core.dtypes cimport NO_ROW, dtype_name, find_name, find_typestr, get_row, row_name
from dlbridge._core.late cimport load_module
from dlbridge._core.layout cimport MAX_NDIM, STRIDED, fill_compact
from dlbridge._core.plan cimport contiguous_hint
from dlbridge._core.request cimport Request, parse_request
from dlbridge._core.route cimport Route, note_device, route_to
from dlbridge._core.sources.registry cimport acquire_by

from dlbridge.errors import ConversionError, refusal, shown

cdef enum:
    INFERRED = -1           # an extent that the others and the size give


cdef int row_named(str stage, object dtype, bint* swapped) except -2:
    cdef int row = NO_ROW
    cause = None
    swapped[0] = False
    if type(dtype) is str:
        row = find_name(dtype)
        if row == NO_ROW:
            row = find_typestr(dtype, swapped)
    elif dtype is not None:
        row = find_name(shown(dtype, str).rpartition(".")[2].lower())       # torch.bfloat16, polars' Float32
    if row == NO_ROW and dtype is not None:
        import numpy as np

        try:
            # pyarrow's word for float32 is float.
            found = np.dtype(dtype.to_pandas_dtype() if hasattr(dtype, "to_pandas_dtype") else dtype)
            if found.fields is None:
                swapped[0] = not found.isnative
                row = find_name(found.name)
        except (TypeError, ValueError, SyntaxError, NotImplementedError) as error:
            # NumPy parses words with commas in them as Python.
            cause = None if isinstance(dtype, str) else error
    if row == NO_ROW:
        raise refusal(ConversionError, stage, "dtype", shown(dtype), "is no type that dlbridge knows",
                      load_module("dlbridge._core.meant").about_dtype(dtype)) from cause
    return row


cdef int32_t read_numbers(str stage, str field, object values, int64_t* out) except -1:
    try:
        numbers = tuple([index(value) for value in values])
    except TypeError as error:
        raise TypeError(f"{stage}: {field} {shown(values)}: is no tuple of integers (pass one integer for each "
                        "axis)") from error
    if len(numbers) > MAX_NDIM:
        raise refusal(ConversionError, stage, field, f"of {len(numbers)} axes", "is more than 64",
                      "describe fewer axes")
    for axis, number in enumerate(numbers):
        if not -(1 << 63) < number < 1 << 63:
            raise refusal(ConversionError, stage, field, numbers, "is beyond any memory", "check it")
        out[axis] = number
    return <int32_t> len(numbers)


# ---- bytes, seen as something else -----------------------------------------------------------------------------------

cdef int read_description(object dtype, object shape, Description* described) except -1:
    described.swapped = False
    described.row = find_name("uint8") if dtype is None else row_named("convert", dtype, &described.swapped)
    described.ndim = 1
    described.extents[0] = INFERRED
    if shape is not None:
        described.ndim = read_numbers("convert", "shape", shape, described.extents)


cdef Managed* seen_as(Managed* managed, object dtype, object shape, Description* described) except NULL:
    cdef Managed* seen
    managed_own_storage(managed)        # on failure it releases the block
    try:
        check_bytes(managed, dtype, shape, described.row)
        infer(managed, described.row, shape, described.ndim, described.extents)
        seen = managed_new(<Protocol> managed.protocol, described.ndim)
    except BaseException:
        managed_release(managed)
        raise
    managed_own(seen, OWNS_BASE, managed)
    describe(seen, managed, described.row, described.extents)
    if described.swapped and get_row(described.row).item_bytes > 1:
        seen.marks |= SWAPPED
    if has_streams(managed.abi.dl_tensor.device.device_type):
        try:
            device_operations().inherit(seen, managed)
        except BaseException:
            managed_release(seen)
            raise
    return managed_checked(seen)


cdef int check_bytes(const Managed* managed, object dtype, object shape, int row) except -1:
    """Only bytes side by side can be seen as something else."""
    field, value = ("shape", shape) if dtype is None else ("dtype", dtype)
    name = dtype_name(managed.abi.dl_tensor.dtype)
    if name not in ("uint8", "int8"):       # pyarrow.Buffer and cuda.core's Buffer are of int8
        hint = 'pass a reshaped array, dlbridge.convert(x, "numpy").reshape(shape)' if dtype is None else (
            "change the type with the library of the array; to see its bytes, "
            'pass numpy.ascontiguousarray(dlbridge.convert(x, "numpy")).view("uint8")')
        if not is_host(managed.abi.dl_tensor.device.device_type):
            hint = f"use the library that made it, for {'x.reshape(shape)' if dtype is None else 'another type'}"
        raise refusal(ConversionError, "convert", field, shown(value), f"is for bytes, and the source has {name}", hint)
    if shape is None and managed.abi.dl_tensor.ndim != 1:
        # An image is an array, of which nobody wants the bytes; with a shape it is said that they are wanted.
        host = is_host(managed.abi.dl_tensor.device.device_type)
        cast = f'convert first, dlbridge.convert(x, "numpy").astype("{row_name(row)}")' if host else (
            "cast it with the library that made it")
        raise refusal(ConversionError, "convert", field, shown(value),
                      f"reads bytes and does not cast, and the source has shape {managed_shape(managed)}",
                      f"{cast}, or pass shape= to read the bytes")
    if managed.marks & STRIDED:
        raise refusal(ConversionError, "convert", field, shown(value),
                      f"is for bytes side by side, and strides are {managed_strides(managed)}",
                      contiguous_hint(managed))


cdef int infer(const Managed* managed, int row, object shape, int32_t ndim, int64_t* extents) except -1:
    """Check a shape against the bytes, and find the extent that was left out."""
    bits = get_row(row).dlpack.bits * get_row(row).dlpack.lanes
    nbytes = managed_nbytes(managed)
    given, largest, left_out = 1, 1, -1
    for axis in range(ndim):
        if extents[axis] == INFERRED and left_out < 0:
            left_out = axis
        elif extents[axis] < 0:
            raise refusal(ConversionError, "convert", "shape", shown(shape), "has a negative extent",
                          "leave out one extent at most, by -1")
        else:
            given *= extents[axis]
            largest *= max(1, extents[axis])
    if largest * bits >= 1 << 63:
        raise refusal(ConversionError, "convert", "shape", shown(shape), "is beyond any memory", "check it")
    if left_out >= 0:
        if not given or nbytes * 8 % (bits * given):
            field, value = ("dtype", row_name(row)) if shape is None else ("shape", shown(shape))
            raise refusal(ConversionError, "convert", field, value, f"does not divide {nbytes} bytes",
                          "pass as many bytes as whole elements have" if given else "name each extent")
        extents[left_out] = nbytes * 8 // (bits * given)
    elif (bits * given + 7) // 8 != nbytes:
        needed = (bits * given + 7) // 8
        raise refusal(ConversionError, "convert", "shape", shown(shape),
                      f"of {row_name(row)} takes {needed} bytes, and there are {nbytes}",
                      fewer_hint(managed, needed) if needed < nbytes else "pass more bytes")


cdef str fewer_hint(const Managed* managed, object count):
    host = is_host(managed.abi.dl_tensor.device.device_type)
    return f"""pass {'dlbridge.convert(x, "numpy").' if host else "x."}reshape(-1)[:{count}]"""


cdef void describe(Managed* seen, const Managed* managed, int row, const int64_t* extents) noexcept:
    cdef uint64_t kept = DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED
    managed_set_row(seen, row)
    memcpy(seen.abi.dl_tensor.shape, extents, seen.abi.dl_tensor.ndim * sizeof(int64_t))
    fill_compact(seen.abi.dl_tensor.ndim, seen.abi.dl_tensor.shape, seen.abi.dl_tensor.strides)
    seen.abi.dl_tensor.device = managed.abi.dl_tensor.device
    seen.abi.dl_tensor.data = managed.abi.dl_tensor.data
    seen.abi.dl_tensor.byte_offset = managed.abi.dl_tensor.byte_offset
    seen.abi.flags = managed.abi.flags & kept


# ---- convert() with dtype= or shape= ---------------------------------------------------------------------------------

def convert_bytes(src, to, dtype, shape, device, copy, stream, readonly, detach, narrow):
    """convert(), where the bytes are described."""
    cdef Request request
    cdef Route route
    parse_request(&request, device, copy, stream, readonly, detach, narrow)
    route = route_to(src, to, &request)
    if route.already and route.target.hosts > 1:
        note_device(src, route, &request)
    return deliver_out_of_line(
        acquire_seen(route.offers, src, dtype, shape, &request), route.target, &request, None)


cdef Managed* acquire_seen(tuple offers, object src, object dtype, object shape, const Request* request) except NULL:
    cdef Description described
    if dtype is None and shape is None:
        return acquire_by(offers, src, request)
    read_description(dtype, shape, &described)
    return seen_as(acquire_by(offers, src, request), dtype, shape, &described)
