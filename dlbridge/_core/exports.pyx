"""Exports: what a consumer of each protocol is given of memory that a block has.

A host protocol has no stream, so whoever is given an address by one may read the memory at once.
"""

from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_F_CONTIGUOUS, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES,
    PyBUF_WRITABLE, PyBuffer_IsContiguous, PyObject_GetBuffer,
)
from cpython.long cimport PyLong_Check
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetPointer, PyCapsule_New, PyCapsule_SetContext
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY, STREAM_LEGACY_DEFAULT,
    STREAM_PER_THREAD_DEFAULT, STREAM_UNORDERED, DLDevice, DLTensor, kDLCPU, kDLROCM,
)
from dlbridge._core.block cimport (
    PROTOCOL_DLBRIDGE, Managed, integers, managed_checked, managed_count, managed_data, managed_item_bytes,
    managed_nbytes, managed_new_over, managed_new_view, managed_packed, managed_release, managed_retain,
    managed_set_row, managed_shape, managed_span, managed_strides, managed_take_buffer, managed_take_tuples,
    managed_take_versioned,
)
from dlbridge._core.capsule cimport new_arrow_capsules, new_legacy_capsule, new_versioned_capsule
from dlbridge._core.decision cimport Decision, fits, is_immutable
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host, is_pinned, parse_device
from dlbridge._core.dtypes cimport NO_ROW, dtype_name, find_name, get_row, row_typestr
from dlbridge._core.late cimport load_module
from dlbridge._core.layout cimport LENGTH_1, STRIDED, Span
from dlbridge._core.place cimport shared_in_order
from dlbridge._core.request cimport (
    COPY_ALWAYS, COPY_NEVER, NOTHING_ASKED, READONLY_SHARE, ReadonlyPolicy, Request, keeps_handle, parse_stream,
)
from dlbridge._core.sources.array_interface cimport (
    NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_NOTSWAPPED, NPY_ARRAY_WRITEABLE, PyArrayInterface,
)
from dlbridge._core.steps cimport order, placed
from dlbridge._core.target cimport Target, new_target

from dlbridge.errors import ConversionError, DeviceError, refusal, shown


# ---- consumers that are no library -----------------------------------------------------------------------------------

cdef dict consumers = {}        # by their names in libraries/dlpack


cdef Target consumer_named(str name):
    """The target that says what a capsule, an array of Arrow or a pickle supports."""
    cdef Target target = consumers.get(name)
    if target is None:
        facts, called, hint = load_module("dlbridge.libraries.dlpack").EXPORTS[name]
        target = new_target(facts)
        target.called, target.export_hint = called, hint
        target.load()
        consumers[name] = target
    return target


cdef Managed* exported(Managed* base, Target target, Request* request) except NULL:
    """A new block over the memory as it is wanted, or over a copy."""
    cdef Decision decision
    cdef Managed* managed
    if is_immutable(target) and not has_streams(base.abi.dl_tensor.device.device_type):
        managed = managed_take_versioned(PROTOCOL_DLBRIDGE, &managed_retain(base).abi)     # which can be sealed
    else:
        managed = shared_in_order(base)
    return managed if fits(managed, target, request) else placed(managed, target, request, None, &decision)


cdef Managed* copied_where_it_is(Managed* base) except NULL:
    cdef Request request = NOTHING_ASKED
    request.copy = COPY_ALWAYS
    return exported(base, consumer_named("VERSIONED"), &request)


cdef int await_for_cpu(Managed* managed) except -1:
    """Wait until the producer's work on pinned memory is done, since the host protocols have no stream.

    Their consumer reads the memory as soon as it has the address.
    """
    cdef int32_t device_type = managed.abi.dl_tensor.device.device_type
    return device_operations().await_producer(managed) if device_type != kDLCPU and is_pinned(device_type) else 0


# ---- DLPack ----------------------------------------------------------------------------------------------------------

cdef object export_capsule(
    Managed* base, ReadonlyPolicy policy, bint versioned, object stream, object dl_device, object copy,
):
    cdef Request request = NOTHING_ASKED
    cdef Managed* managed
    request.readonly = policy
    if copy is True:
        request.copy = COPY_ALWAYS
    elif copy is False:
        request.copy = COPY_NEVER
    elif copy is not None:
        raise ValueError(f"dlpack: copy {shown(copy)}: is not one of None, True and False (None copies only if needed)")
    if dl_device is not None:
        request.has_device = True
        read_device(dl_device, &request.device)
    name_stream(&request, stream, base.abi.dl_tensor.device.device_type)
    managed = exported(base, consumer_named("VERSIONED" if versioned else "LEGACY"), &request)
    return new_versioned_capsule(managed) if versioned else new_legacy_capsule(managed)


cdef int read_device(object dl_device, DLDevice* out) except -1:
    try:
        parse_device(dl_device, out)
    except DeviceError as error:
        raise refusal(DeviceError, "dlpack", "dl_device", error.value, error.wrong,
                      "pass a pair, as __dlpack_device__() gives it") from None
    return 0


cdef Managed* in_default_order(Managed* base) except NULL:
    cdef Request request = NOTHING_ASKED
    name_stream(&request, None, base.abi.dl_tensor.device.device_type)
    return shared_for(base, &request)


cdef Managed* shared_for(Managed* base, const Request* request) except NULL:
    cdef Managed* managed = shared_in_order(base)
    try:
        order(managed, request)
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef int name_stream(Request* request, object stream, int32_t device_type) except -1:
    """Note the stream of a consumer, which means the legacy default one where it names none."""
    if stream is not None and not (PyLong_Check(stream) and stream == STREAM_UNORDERED):
        check_stream(stream, device_type)
    if not has_streams(device_type):
        return 0
    request.has_stream, request.stream = True, STREAM_LEGACY_DEFAULT
    if stream is not None:
        request.stream = consumer_number(stream, device_type)
        # The standard's streams are integers. A stream that is given as an object is kept alive.
        request.stream_object = <PyObject*> stream if keeps_handle(stream) else NULL


cdef int check_stream(object stream, int32_t device_type) except -1:
    """Refuse any stream for memory of the host, and for devices without streams what is not even a number."""
    cdef bint on_host = is_host(device_type)
    if (on_host or not has_streams(device_type)) and (not PyLong_Check(stream) or type(stream) is bool):
        parse_stream(stream, "dlpack")
    if on_host:
        raise refusal(DeviceError, "dlpack", "stream", stream, "has no meaning on the CPU", "pass stream=None")


cdef int64_t consumer_number(object stream, int32_t device_type) except? -2:
    """dlbridge's number of a consumer's stream.

    The array API standard numbers ROCm's default stream 0, and has neither 1 nor 2 there.
    """
    if device_type == kDLROCM and PyLong_Check(stream):
        if stream == 0:
            return STREAM_LEGACY_DEFAULT
        if stream == STREAM_LEGACY_DEFAULT or stream == STREAM_PER_THREAD_DEFAULT:
            raise refusal(DeviceError, "dlpack", "stream", stream, "is no stream of ROCm",
                          "pass 0 for the default stream, or a handle")
    return parse_stream(stream, "dlpack")


# ---- interfaces ------------------------------------------------------------------------------------------------------

cdef object no_face(str face, const Managed* managed):
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    return AttributeError(
        f"{face}: {dtype_name(tensor.dtype)} on {device_name(tensor.device)}: has no such face (use __dlpack__)")


cdef object host_typestr(Managed* managed, str face):
    """The typestr of memory that the CPU may read from now on.

    Memory that a host protocol cannot describe raises AttributeError, so that hasattr() is False.
    """
    typestr = row_typestr(managed.row)
    if typestr is None or not is_host(managed.abi.dl_tensor.device.device_type):
        raise no_face(face, managed)
    await_for_cpu(managed)
    return typestr


cdef dict array_interface(Managed* managed):
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    typestr = host_typestr(managed, "__array_interface__")
    strides = None          # None says C order; some consumers refuse strides (Pillow)
    if managed.marks & (STRIDED | LENGTH_1):
        strides = integers(tensor.strides, tensor.ndim, managed_item_bytes(managed))
    return interface_of(managed, typestr, strides)


cdef dict cuda_interface(Managed* managed):
    """The dictionary of __cuda_array_interface__ 3.

    Its stream is the one on which the memory is ready, or None where the consumer need not wait.
    """
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int64_t stream
    typestr = row_typestr(managed.row)
    if typestr is None or not has_streams(tensor.device.device_type):
        raise no_face("__cuda_array_interface__", managed)
    # With the strides of an empty array, CuPy would look for its device at the address 0.
    strides = integers(tensor.strides, tensor.ndim, managed_item_bytes(managed)) if managed_count(managed) else None
    stream = device_operations().stream_of(managed)
    return interface_of(managed, typestr, strides) | {"stream": None if stream == STREAM_UNORDERED else stream}


cdef dict interface_of(const Managed* managed, str typestr, object strides):
    """What both dictionaries have."""
    return {
        "shape": managed_shape(managed),
        "typestr": typestr,
        "descr": [("", typestr)],
        "data": (<size_t> managed_data(managed), bool(managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY)),
        "strides": strides,
        "version": 3,
    }


cdef object new_array_struct(Managed* base):
    cdef int32_t ndim = base.abi.dl_tensor.ndim
    cdef int32_t axis
    cdef int64_t item_bytes = managed_item_bytes(base)
    cdef Managed* managed
    cdef PyArrayInterface* interface
    host_typestr(base, "__array_struct__")
    managed = managed_new_view(base)
    interface = <PyArrayInterface*> malloc(sizeof(PyArrayInterface) + 2 * ndim * sizeof(Py_ssize_t))
    if interface == NULL:
        managed_release(managed)
        raise MemoryError
    interface.two = 2
    interface.nd = ndim
    interface.typekind = get_row(managed.row).kind
    interface.itemsize = <int> item_bytes
    interface.flags = NPY_ARRAY_NOTSWAPPED
    if not managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY:
        interface.flags |= NPY_ARRAY_WRITEABLE
    if not managed.marks & STRIDED:
        interface.flags |= NPY_ARRAY_C_CONTIGUOUS
    interface.shape = <Py_ssize_t*> (interface + 1)
    interface.strides = interface.shape + ndim
    for axis in range(ndim):
        interface.shape[axis] = managed.abi.dl_tensor.shape[axis]
        interface.strides[axis] = managed.abi.dl_tensor.strides[axis] * item_bytes
    interface.data = managed_data(managed)
    interface.descr = NULL
    try:
        capsule = PyCapsule_New(interface, NULL, drop_array_struct)
        PyCapsule_SetContext(capsule, managed)
    except BaseException:
        free(interface)
        managed_release(managed)
        raise
    return capsule


cdef void drop_array_struct(object capsule) noexcept:
    free(PyCapsule_GetPointer(capsule, NULL))
    managed_release(<Managed*> PyCapsule_GetContext(capsule))


# ---- Arrow -----------------------------------------------------------------------------------------------------------

cdef object arrow_capsules(Managed* base, ReadonlyPolicy policy):
    cdef Request request = NOTHING_ASKED
    request.readonly = policy
    return new_arrow_capsules(exported(base, consumer_named("ARROW"), &request))


# ---- the buffer protocol ---------------------------------------------------------------------------------------------

cdef int fill_buffer(Py_buffer* view, Managed* managed, int flags) except -1:
    """Fill a Py_buffer, except for its owner.

    PEP 3118: a field that the consumer did not ask for is NULL, and the consumer then assumes its default. So the
    memory has to be what the defaults say.
    """
    check_buffer(managed, flags)
    await_for_cpu(managed)
    view.internal = new_extents(managed)
    describe_buffer(view, managed)
    if not is_layout_asked_for(view, flags):
        free(view.internal)
        raise refusal(ConversionError, "buffer", "strides", managed_strides(managed),
                      "are not the contiguous ones asked for", "ask for PyBUF_STRIDES, or make it contiguous first")
    if flags & PyBUF_STRIDES != PyBUF_STRIDES:
        view.strides = NULL
    if flags & PyBUF_ND != PyBUF_ND:
        view.ndim, view.shape = 1, NULL         # bytes side by side; hashlib refuses more axes
    if flags & PyBUF_FORMAT != PyBUF_FORMAT:
        view.format = NULL


cdef str BYTES_OF_IT = ('pass its bytes, numpy.ascontiguousarray(dlbridge.convert(x, "numpy")).view("uint8"), or use '
                        "__dlpack__")


cdef int check_buffer(const Managed* managed, int flags) except -1:
    """Refuse memory that the protocol cannot describe, and read-only memory if the consumer asks to write."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    if get_row(managed.row).format == NULL or managed_packed(managed) or not is_host(tensor.device.device_type):
        as_bytes = is_host(tensor.device.device_type) and not managed_packed(managed)
        raise refusal(ConversionError, "buffer", "dtype", f"{dtype_name(tensor.dtype)} on {device_name(tensor.device)}",
                      "has no PEP 3118 form", BYTES_OF_IT if as_bytes else "use __dlpack__")
    if flags & PyBUF_WRITABLE and managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY:
        raise refusal(ConversionError, "buffer", "flags", "PyBUF_WRITABLE", "asks for more than read-only memory gives",
                      "ask for a read-only buffer")


cdef Py_ssize_t* new_extents(const Managed* managed) except NULL:
    """Extents and strides in bytes, which the buffer's release frees."""
    cdef const DLTensor* described = &managed.abi.dl_tensor
    cdef int64_t item_bytes = managed_item_bytes(managed)
    cdef int32_t axis           # without the declaration it would be an object, which needs memory
    cdef Py_ssize_t* extents = <Py_ssize_t*> malloc(2 * described.ndim * sizeof(Py_ssize_t) + 1)
    if extents == NULL:
        raise MemoryError
    for axis in range(described.ndim):
        extents[axis] = described.shape[axis]
        extents[described.ndim + axis] = described.strides[axis] * item_bytes
    return extents


cdef void describe_buffer(Py_buffer* view, Managed* managed) noexcept:
    """Fill in every field, as for a consumer that asks for all of them."""
    view.buf = managed_data(managed) if managed_count(managed) else <char*> managed
    view.len = managed_nbytes(managed)
    view.itemsize = managed_item_bytes(managed)
    view.readonly = bool(managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY)
    view.ndim = managed.abi.dl_tensor.ndim
    view.format = <char*> get_row(managed.row).format
    view.shape = <Py_ssize_t*> view.internal
    view.strides = view.shape + view.ndim
    view.suboffsets = NULL


cdef bint is_layout_asked_for(Py_buffer* view, int flags) noexcept:
    if flags & PyBUF_C_CONTIGUOUS == PyBUF_C_CONTIGUOUS or flags & PyBUF_STRIDES != PyBUF_STRIDES:
        return PyBuffer_IsContiguous(view, b"C")
    if flags & PyBUF_F_CONTIGUOUS == PyBUF_F_CONTIGUOUS:
        return PyBuffer_IsContiguous(view, b"F")
    if flags & PyBUF_ANY_CONTIGUOUS == PyBUF_ANY_CONTIGUOUS:
        return PyBuffer_IsContiguous(view, b"A")
    return True


# ---- pickles ---------------------------------------------------------------------------------------------------------

# A pickle has the touched bytes, from the first to the last, and the strides. Of memory with holes it has a compact
# copy, so that it never has more bytes than the elements.

cdef Managed* picklable(Managed* base) except NULL:
    cdef Request request = NOTHING_ASKED
    request.has_device, request.device = True, DLDevice(kDLCPU, 0)
    request.readonly = READONLY_SHARE
    return exported(base, consumer_named("PICKLE"), &request)


cdef Managed* flattened(Managed* managed, int64_t* offset_bytes) except NULL:
    cdef Span span = managed_span(managed)
    cdef Managed* flat
    if not managed_count(managed):
        span.low_bytes = span.high_bytes = 0
    flat = managed_new_over(managed, PROTOCOL_DLBRIDGE, 1)
    offset_bytes[0] = -span.low_bytes
    managed_set_row(flat, find_name("uint8"))
    flat.abi.dl_tensor.data = <char*> flat.abi.dl_tensor.data + span.low_bytes
    flat.abi.dl_tensor.shape[0] = span.high_bytes - span.low_bytes
    flat.abi.dl_tensor.strides[0] = 1
    flat.abi.flags = managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY
    return managed_checked(flat)


cdef Managed* unpickled(
    object received, int64_t offset_bytes, tuple shape, tuple strides, str dtype, bint padded,
) except NULL:
    cdef Py_buffer view
    cdef Managed* managed
    cdef Py_ssize_t length
    cdef char* begin
    cdef bint readonly
    PyObject_GetBuffer(received, &view, PyBUF_SIMPLE)
    begin, length, readonly = <char*> view.buf, view.len, view.readonly
    managed = managed_take_buffer(PROTOCOL_DLBRIDGE, &view, len(shape))
    managed.abi.flags = DLPACK_FLAG_BITMASK_READ_ONLY if readonly else 0
    return described_in(managed, begin, length, offset_bytes, shape, strides, dtype, padded)


cdef Managed* described_in(
    Managed* managed, char* begin, int64_t length, int64_t offset_bytes, tuple shape, tuple strides, str dtype,
    bint padded,
) except NULL:
    cdef int row = find_name(dtype)
    if row == NO_ROW:
        managed_release(managed)
        raise damaged("dtype", dtype, "is none that dlbridge has")
    if len(strides) != len(shape):
        managed_release(managed)
        raise damaged("strides", strides, f"do not fit shape {shape}")
    if not 0 <= offset_bytes <= length:
        managed_release(managed)
        raise damaged("offset", offset_bytes, f"is outside of {length} bytes")
    managed_set_row(managed, row)
    managed_take_tuples(managed, shape, strides)
    managed.abi.dl_tensor.data = begin + offset_bytes
    managed.abi.flags |= DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED if padded else 0
    managed = managed_checked(managed)
    check_length(managed, offset_bytes, length)
    return managed


cdef int check_length(Managed* managed, int64_t offset_bytes, int64_t length) except -1:
    """Refuse elements that are not among the bytes; the block is then released."""
    cdef Span span = managed_span(managed)
    if not managed_count(managed) or (
            offset_bytes + span.low_bytes >= 0 and offset_bytes + span.high_bytes <= length):
        return 0
    shape = managed_shape(managed)
    managed_release(managed)
    raise damaged("shape", shape, f"touches bytes {offset_bytes + span.low_bytes} to {offset_bytes + span.high_bytes} "
                  f"of {length}")


cdef object damaged(str field, object value, str wrong):
    return refusal(ConversionError, "pickle", field, value, wrong, "the pickle is damaged: make it again")
