"""from_pointer(): memory that a foreign library gives as an address."""

from operator import index

from libc.stdint cimport int64_t, uint64_t

from dlbridge._core.abi cimport DLPACK_FLAG_BITMASK_READ_ONLY, STREAM_LEGACY_DEFAULT, DLTensor
from dlbridge._core.block cimport PROTOCOL_DLBRIDGE, Managed, managed_from_tensor, managed_own_object, managed_release
from dlbridge._core.described cimport read_numbers, row_named
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, parse_device
from dlbridge._core.dtypes cimport get_row
from dlbridge._core.layout cimport MAX_NDIM
from dlbridge._core.request cimport READONLY_COPY, keeps_handle, parse_stream
from dlbridge._core.sources.offer cimport top_module
from dlbridge.tensor cimport new_tensor

from dlbridge.errors import ConversionError, DeviceError, refusal, shown

# How the address is written of what is passed in its place, by an attribute of it.
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
    """from_pointer(), which is loaded with its first call."""
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
    described.dtype = get_row(row_of(dtype)).dlpack
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


cdef int row_of(object dtype) except -2:
    cdef bint swapped = False
    row = row_named("from_pointer", dtype, &swapped)
    if swapped:
        raise refusal(ConversionError, "from_pointer", "dtype", shown(dtype), "is of the other byte order",
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
