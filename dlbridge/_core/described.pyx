"""Memory as a user describes it: a dtype and a shape for bytes, or all that is to be known of an address."""

from operator import index

from numpy import ndarray

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, STREAM_LEGACY_DEFAULT, DLDevice, DLTensor, kDLCPU,
)
from dlbridge._core.atomic cimport load
from dlbridge._core.block cimport (
    PROTOCOL_DLBRIDGE, SWAPPED, Managed, Protocol, managed_checked, managed_from_tensor, managed_nbytes,
    managed_new_over, managed_own_object, managed_own_storage, managed_release, managed_set_row, managed_shape,
    managed_strides,
)
from dlbridge._core.conversion cimport deliver_out_of_line
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host, parse_device
from dlbridge._core.dtypes cimport NO_ROW, dtype_name, find_name, find_typestr, get_row, row_name
from dlbridge._core.late cimport load_module
from dlbridge._core.layout cimport MAX_NDIM, STRIDED, fill_compact, multiply_overflows
from dlbridge._core.numpy_api cimport NPY_VOID, array_type
from dlbridge._core.place cimport allocated, in_order_of
from dlbridge._core.plan cimport contiguous_hint
from dlbridge._core.request cimport READONLY_COPY, Request, keeps_handle, parse_stream
from dlbridge._core.route cimport Route, note_device, route_to
from dlbridge._core.sources.offer cimport Offer, top_module
from dlbridge._core.sources.registry cimport acquire_by, offers_for_type
from dlbridge.tensor cimport new_tensor

from dlbridge.errors import ConversionError, DeviceError, full_name, refusal, shown


cdef enum:
    INFERRED = -1           # an extent that the others and the size give

cdef int UINT8 = find_name("uint8")

cdef struct AskedLayout:
    int row
    bint swapped                    # whether its bytes are in the other order
    int32_t ndim
    int64_t[MAX_NDIM] extents       # one may be left out


cdef int row_named(str stage, object dtype, bint* swapped) except -2:
    """The row of a dtype as convert() and from_pointer() take it. swapped: whether its bytes are in the other order."""
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
            # NumPy parses words with commas in them as Python; pyarrow has types that NumPy has not.
            cause = None if isinstance(dtype, str) else error
    if row == NO_ROW:
        raise refusal(ConversionError, stage, "dtype", shown(dtype), "is no type that dlbridge knows",
                      load_module("dlbridge._core.meant").about_dtype(dtype)) from cause
    return row


cdef int32_t read_numbers(str stage, str field, object values, int64_t* out) except -1:
    """Read the numbers of a shape or of strides, up to 64; how many there are."""
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

cdef int read_description(object dtype, object shape, AskedLayout* described) except -1:
    """Read dtype and shape; None means uint8, and one axis. Done before memory is acquired, as it may run any code."""
    described.swapped = False
    described.row = UINT8 if dtype is None else row_named("convert", dtype, &described.swapped)
    described.ndim = 1
    described.extents[0] = INFERRED
    if shape is not None:
        described.ndim = read_numbers("convert", "shape", shape, described.extents)


cdef Managed* seen_as(Managed* managed, object dtype, object shape, AskedLayout* described) except NULL:
    """The bytes of a block with another dtype or shape. Steals managed, also when it fails."""
    cdef Managed* seen = managed
    cdef uint64_t flags = managed.abi.flags & (DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED)
    managed_own_storage(managed)        # on failure it releases the block
    try:
        check_bytes(managed, dtype, shape, described.row)
        infer(managed, described.row, shape, described.ndim, described.extents)
    except BaseException:
        managed_release(managed)
        raise
    if load(&managed.references) > 1 or managed.abi.dl_tensor.ndim != described.ndim:
        seen = managed_new_over(managed, <Protocol> managed.protocol, described.ndim)
    seen.abi.flags = flags
    take_description(seen, described)
    # After take_description(): the note of the stream is of the bytes that the description reaches.
    return managed_checked(seen if seen == managed else in_order_of(managed, seen))


cdef int check_bytes(const Managed* managed, object dtype, object shape, int row) except -1:
    """Only bytes side by side can be seen as something else."""
    if managed.row == UINT8 and not managed.marks & STRIDED and (shape is not None or managed.abi.dl_tensor.ndim == 1):
        return 0
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
        # Whoever passes a dtype for an image wants a cast, and not its bytes. A shape says that its bytes are wanted.
        host = is_host(managed.abi.dl_tensor.device.device_type)
        cast = f'convert first, dlbridge.convert(x, "numpy").astype("{row_name(row)}")' if host else (
            "cast it with the library that made it")
        raise refusal(ConversionError, "convert", field, shown(value),
                      f"reads bytes and does not cast, and the source has shape {managed_shape(managed)}",
                      f"{cast}, or pass shape= to read the bytes")
    if managed.marks & STRIDED:
        raise refusal(ConversionError, "convert", field, shown(value),
                      f"is for bytes side by side, and strides are {managed_strides(managed)}",
                      contiguous_hint(managed, None))


cdef int infer(const Managed* managed, int row, object shape, int32_t ndim, int64_t* extents) except -1:
    """Check a shape against the bytes, and find the extent that was left out."""
    cdef int64_t nbytes = managed_nbytes(managed)
    cdef int64_t given = get_row(row).dlpack.bits * get_row(row).dlpack.lanes       # in bits
    cdef int64_t largest = given, needed
    cdef int32_t axis, left_out = -1
    for axis in range(ndim):
        if extents[axis] == INFERRED and left_out < 0:
            left_out = axis
        elif extents[axis] < 0:
            raise refusal(ConversionError, "convert", "shape", shown(shape), "has a negative extent",
                          "leave out one extent at most, by -1")
        elif multiply_overflows(largest, max(1, extents[axis]), &largest):
            raise refusal(ConversionError, "convert", "shape", shown(shape), "is beyond any memory", "check it")
        else:
            given *= extents[axis]
    needed = given // 8 + (given % 8 > 0)
    if left_out >= 0:
        if not given or nbytes * 8 % given:
            field, value = ("dtype", row_name(row)) if shape is None else ("shape", shown(shape))
            raise refusal(ConversionError, "convert", field, value, f"does not divide {nbytes} bytes",
                          "pass as many bytes as whole elements have" if given else "name each extent")
        extents[left_out] = nbytes * 8 // given
    elif needed != nbytes:
        raise refusal(ConversionError, "convert", "shape", shown(shape),
                      f"of {row_name(row)} takes {needed} bytes, and there are {nbytes}",
                      fewer_hint(managed, needed) if needed < nbytes else "pass more bytes")


cdef str fewer_hint(const Managed* managed, object count):
    host = is_host(managed.abi.dl_tensor.device.device_type)
    return f"""pass {'dlbridge.convert(x, "numpy").' if host else "x."}reshape(-1)[:{count}]"""


cdef void take_description(Managed* managed, const AskedLayout* described) noexcept:
    cdef DLTensor* tensor = &managed.abi.dl_tensor
    managed_set_row(managed, described.row)
    managed.marks = SWAPPED if described.swapped and get_row(described.row).item_bytes > 1 else 0
    memcpy(tensor.shape, described.extents, tensor.ndim * sizeof(int64_t))
    fill_compact(tensor.ndim, tensor.shape, tensor.strides)


# ---- convert() with dtype= or shape= ---------------------------------------------------------------------------------

cdef object convert_seen(object src, object to, object dtype, object shape, Request* request):
    """convert(), where the bytes are described."""
    cdef Route route = route_to(src, to, request)
    if route.already and route.target.hosts > 1:
        note_device(src, route, request)
    return deliver_out_of_line(acquire_seen(route, src, dtype, shape, request), route.target, request, None)


cdef int refuse_several(Route route, object src, str field, object value) except -1:
    """Refuse a keyword for one array, where the source or what ``to`` names is several arrays."""
    find = load_module("dlbridge.libraries.library").finder_of_form(type(src))
    several = full_name(type(src)) if find is not None and find(src) is not None else None
    if several is None and route.wants_form:
        several = full_name(route.forms.kind) if isinstance(route.forms.kind, type) else str(route.forms.kind)
    if several is not None:
        raise refusal(ConversionError, "convert", field, shown(value, str),
                      f"is for one array, and {several} is several", f"leave out {field}=")


cdef Managed* acquire_seen(Route route, object src, object dtype, object shape, const Request* request) except NULL:
    cdef AskedLayout described
    cdef Managed* managed
    if dtype is None and shape is None:
        return acquire_by(route.offers, src, request)
    refuse_several(route, src, "shape" if dtype is None else "dtype", shape if dtype is None else dtype)
    read_description(dtype, shape, &described)
    if dtype is not None and shape is not None:
        has_bytes = (<Offer> route.offers[len(route.offers) - 1]).facts.bytes_in_buffer
        if has_bytes is not None and has_bytes(src):
            return seen_as(acquire(memoryview(src), request), dtype, shape, &described)
    try:
        managed = acquire_by(route.offers, src, request)
    except ConversionError as error:
        memory = memory_beside(error, src, row_name(described.row), shape)
        if memory is None:
            raise
        managed = acquire(memory, request)
        if shape is None:
            return managed
    return seen_as(managed, dtype, shape, &described)


cdef inline Managed* acquire(object memory, const Request* request) except NULL:
    return acquire_by(offers_for_type(type(memory)), memory, request)


cdef object memory_beside(object error, object src, str name, object shape):
    """The memory of what was refused for its type, whose elements are several numbers each; or None.

    With a shape it is bytes, of elements of any kind; else it has the numbers as a last axis.
    """
    # Python's error for want of memory, which has no field, may have come in place of the one that is caught.
    if getattr(error, "field", None) not in ("dtype", "format"):
        return None
    if issubclass(type(src), ndarray) and array_type(src) != NPY_VOID:
        return None
    records = load_module("dlbridge.libraries.records")
    return records.seen_in(src, name) if shape is None else records.bytes_of(src)


# ---- an address ------------------------------------------------------------------------------------------------------

# The hint on how to write an address, by an attribute of the object that was passed in its place.
cdef str CAST = "pass ctypes.cast(x, ctypes.c_void_p).value"
cdef str OF_CFFI = 'pass int(ffi.cast("uintptr_t", x))'
cdef str NO_ADDRESS = "call dlbridge.asdlpack(x), which needs no address"
cdef dict ADDRESSES = {
    "data_ptr": "pass x.data_ptr()",
    "__array_interface__": 'pass x.__array_interface__["data"][0]',
    "encode": "pass int(x, 0)",
    "contents": CAST,                       # a pointer of ctypes, whose own address is another one
    "_length_": "pass ctypes.addressof(x)",
    "_fields_": "pass ctypes.addressof(x)",
    "value": "pass x.value",
    "decode": NO_ADDRESS,                   # bytes and bytearray
    "toreadonly": NO_ADDRESS,               # memoryview
    "buffer_info": NO_ADDRESS,              # array.array
}


def tensor_at(address, shape, dtype, strides, device, readonly, owner, stream):
    """What from_pointer() does."""
    cdef int64_t extents[MAX_NDIM]
    cdef int64_t steps[MAX_NDIM]
    cdef DLTensor described
    cdef Managed* managed
    described.ndim = read_numbers("from_pointer", "shape", shape, extents)
    described.shape, described.strides, described.byte_offset = extents, NULL, 0
    if strides is not None:
        described.strides = steps
        if read_numbers("from_pointer", "strides", strides, steps) != described.ndim:
            raise ValueError(f"from_pointer: strides {shown(strides)}: are not as many as the {described.ndim} extents "
                             "(pass one for each axis)")
    described.dtype = get_row(native_row("from_pointer", dtype)).dlpack
    described.data = pointer_of(address)
    parse_device(device, &described.device)
    described.device.device_id = max(0, described.device.device_id)
    try:
        managed = managed_from_tensor(PROTOCOL_DLBRIDGE, &described, DLPACK_FLAG_BITMASK_READ_ONLY if readonly else 0)
    except ConversionError as error:
        raise refusal(ConversionError, "from_pointer", error.field, error.value, error.wrong,
                      "check the address, the shape and the strides") from None
    if owner is not None:
        managed_own_object(managed, owner)
    note_stream(managed, stream)
    return new_tensor(managed, READONLY_COPY)


cdef int native_row(str stage, object dtype) except -2:
    cdef bint swapped = False
    row = row_named(stage, dtype, &swapped)
    if swapped:
        raise refusal(ConversionError, stage, "dtype", shown(dtype), "is of the other byte order",
                      "describe it as integers of the same size")
    return row


cdef void* pointer_of(object address) except? NULL:
    try:
        number = index(address)
    except TypeError:
        of_cffi = top_module(type(address)) == "_cffi_backend"
        hint = OF_CFFI if of_cffi else next((code for name, code in ADDRESSES.items() if hasattr(address, name)), CAST)
        raise TypeError(f"from_pointer: address of type {type(address).__qualname__}: is no integer ({hint})") from None
    if not 0 <= number < 1 << 64:
        raise refusal(ConversionError, "from_pointer", "address", number, "is no address", "check it")
    return <void*> <uint64_t> number


cdef int note_stream(Managed* managed, object stream) except -1:
    """Note the stream on which device memory is ready; on failure the block is released."""
    cdef int64_t number = STREAM_LEGACY_DEFAULT
    try:
        if not has_streams(managed.abi.dl_tensor.device.device_type):
            if stream is not None:
                raise refusal(DeviceError, "from_pointer", "stream", shown(stream),
                              f"has no meaning on {device_name(managed.abi.dl_tensor.device)}", "pass stream=None")
            return 0
        if stream is not None:
            number = parse_stream(stream, "from_pointer")
        return device_operations().set_producer(managed, number, stream if keeps_handle(stream) else None, False)
    except BaseException:
        managed_release(managed)
        raise


# ---- new memory ------------------------------------------------------------------------------------------------------

cdef Managed* described_by(str stage, object shape, object dtype) except NULL:
    cdef int64_t extents[MAX_NDIM]
    cdef DLTensor described
    try:
        shape = (index(shape),)
    except TypeError:
        pass                    # a tuple
    described.ndim = read_numbers(stage, "shape", shape, extents)
    described.shape, described.strides, described.byte_offset = extents, NULL, 0
    described.dtype = get_row(native_row(stage, dtype)).dlpack
    described.device = DLDevice(kDLCPU, 0)
    described.data = extents        # of which only the address is looked at
    try:
        return managed_from_tensor(PROTOCOL_DLBRIDGE, &described, 0)
    except ConversionError as error:
        raise refusal(ConversionError, stage, error.field, error.value, error.wrong, "check the shape") from None


def new_tensor_of(shape, dtype):
    """What empty() does."""
    cdef Managed* like = described_by("empty", shape, dtype)
    try:
        return new_tensor(managed_checked(allocated(like, managed_nbytes(like))), READONLY_COPY)
    except MemoryError:
        raise MemoryError(f"empty: shape {shown(shape)}: takes {managed_nbytes(like)} bytes, which are not available "
                          "(ask for less)") from None
    finally:
        managed_release(like)
