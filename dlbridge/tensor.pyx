"""Tensor: one Managed that speaks every protocol."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, EXCHANGE_NAME, STREAM_LEGACY_DEFAULT, DLDataType, DLDevice, DLManagedTensorVersioned,
    DLPackExchangeAPI, DLTensor, SetError, kDLCPU,
)
from dlbridge._core.atomic cimport exchange_byte
from dlbridge._core.block cimport (
    OWNS_MEMORY, PROTOCOL_DLBRIDGE, PROTOCOL_DLPACK, Managed, Protocol, managed_checked, managed_count, managed_data,
    managed_drop, managed_drop_second, managed_from_tensor, managed_item_bytes, managed_made_lendable, managed_nbytes,
    managed_new, managed_owner, managed_packed, managed_release, managed_retain, managed_set_row, managed_shape,
    managed_span, managed_strides, managed_take_versioned, protocol_name, set_find_block,
)
from dlbridge._core.capsule cimport has_arrow_form, new_versioned_capsule
from dlbridge._core.copies cimport is_watched, note_copy
from dlbridge._core.decision cimport COPY_SPAN
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport device_name, has_streams, is_host, parse_device
from dlbridge._core.dtypes cimport dtype_name, find_name, find_sized, get_row, numpy_dtype, row_typestr
from dlbridge._core.exports cimport (
    array_interface, arrow_capsules, copied_where_it_is, cuda_interface, export_capsule, fill_buffer, flattened,
    new_array_struct, no_face, in_default_order, picklable, unpickled,
)
from dlbridge._core.late cimport load_module
from dlbridge._core.layout cimport Span
from dlbridge._core.place cimport allocated, ask_for_huge_pages, replaced, shared_in_order
from dlbridge._core.request cimport READONLY_COPY, READONLY_SHARE, ReadonlyPolicy, wants_versioned

from functools import partial

import numpy

from dlbridge.errors import ConversionError, DeviceError, MissingLibraryError, full_name, refusal, shown

cdef extern from "Python.h":
    object PyPickleBuffer_FromObject(object exporter)

cdef enum:
    FEW = 1 << 10               # fewer bytes are copied, which is faster than keeping the received ones
    MANY = 1 << 16              # from so many on, other threads run while they are copied


cdef DLPackExchangeAPI EXCHANGE_API         # filled at the end of this file
cdef tuple CPU_DEVICE = (<int> kDLCPU, 0)   # made once, since every consumer asks before it takes


cdef Managed* new_nothing() except NULL:
    cdef Managed* managed = managed_new(PROTOCOL_DLBRIDGE, 1)
    managed.abi.dl_tensor.shape[0] = 0
    managed.abi.dl_tensor.strides[0] = 1
    managed_set_row(managed, find_name("uint8"))
    return managed_checked(managed)


cdef Managed* NOTHING = managed_made_lendable(new_nothing())


cdef const Managed* find_block(object owner) noexcept:
    return (<Tensor> owner).managed if isinstance(owner, Tensor) else NULL


set_find_block(find_block)


cdef Tensor new_tensor(Managed* managed, ReadonlyPolicy policy):
    cdef Tensor tensor
    try:
        if has_streams(managed.abi.dl_tensor.device.device_type):
            device_operations().make_handover(managed)
        tensor = Tensor.__new__(Tensor)
    except BaseException:
        managed_release(managed)
        raise
    tensor.managed = managed_made_lendable(managed)
    tensor.policy = policy
    return tensor


@cython.freelist(8)
cdef class Tensor:
    """Memory of any library, described once and offered through every protocol.

    :func:`dlbridge.asdlpack` makes it; the class cannot be called. It shares the source's memory and keeps it alive. It
    can be consumed any number of times, by any number of consumers. It computes nothing.

    Attributes
    ----------
    shape : tuple of int
        The extents of the axes.
    strides : tuple of int
        The steps of the axes, in elements.
    ndim : int
        The number of axes.
    size : int
        The number of elements.
    itemsize : int
        The bytes of one element; 0 for packed elements below a byte.
    nbytes : int
        The bytes of all elements, without gaps.
    dtype : numpy.dtype or str
        The dtype, by ml_dtypes where NumPy has none (``bfloat16``). It is equal to its name. It is the name alone where
        ml_dtypes is not installed or has no such type, and for packed elements.
    device : str
        The device as ``device=`` takes it: ``"cpu"``, ``"cuda:1"``.
    pickled_on : str
        The device on which the memory was before it was pickled, since a pickle is always unpickled on the host.
        Otherwise the same as ``device``.
    readonly : bool
        Whether the source flagged the memory as read-only.
    data_ptr : int
        The address of the first element, ``byte_offset`` included.
    byte_offset : int
        The bytes from the handle of the memory to the first element; 0 on devices whose memory has addresses.
    protocol : str
        The protocol by which the memory came.
    owner : object
        The object that keeps the memory alive, or None if that is not a Python object.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> tensor = dlbridge.asdlpack(numpy.zeros((3, 4), "float32"))
    >>> tensor.shape, tensor.dtype, tensor.protocol
    ((3, 4), dtype('float32'), 'numpy')
    >>> numpy.from_dlpack(tensor).ctypes.data == tensor.data_ptr
    True
    """

    # The C exchange API of DLPack 1.3: five functions that a consumer finds on the type.
    __dlpack_c_exchange_api__ = PyCapsule_New(&EXCHANGE_API, EXCHANGE_NAME, NULL)

    def __cinit__(self):
        # Tensor.__new__() alone gives a Tensor without elements, which has nothing to release.
        self.managed = NOTHING

    def __init__(self, *args, **kwargs):
        raise TypeError("Tensor: __init__: is not for calling (call dlbridge.asdlpack(x))")

    def __dealloc__(self):
        if self.address_given:
            managed_drop_second(self.managed)
        if self.managed != NOTHING:
            managed_drop(self.managed)

    # ---- what it is ----

    @property
    def shape(self):
        return managed_shape(self.managed)

    @property
    def strides(self):
        return managed_strides(self.managed)

    @property
    def ndim(self):
        return self.managed.abi.dl_tensor.ndim

    @property
    def size(self):
        return managed_count(self.managed)

    @property
    def itemsize(self):
        """Bytes of one element; 0 for packed elements below a byte."""
        return managed_item_bytes(self.managed)

    @property
    def nbytes(self):
        return managed_nbytes(self.managed)

    @property
    def dtype(self):
        if managed_packed(self.managed):
            return name_of(self)
        try:
            return numpy_dtype(self.managed.row)
        except MissingLibraryError:
            return name_of(self)

    @property
    def device(self):
        return device_name(self.managed.abi.dl_tensor.device)

    @property
    def pickled_on(self):
        return device_name(pickled_device(self))

    @property
    def readonly(self):
        return bool(self.managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY)

    @property
    def data_ptr(self):
        return <size_t> managed_data(self.managed)

    @property
    def byte_offset(self):
        return self.managed.abi.dl_tensor.byte_offset

    @property
    def protocol(self):
        return protocol_name(<Protocol> self.managed.protocol)

    @property
    def owner(self):
        return managed_owner(self.managed)

    def __repr__(self):
        return (f"dlbridge.Tensor(shape={self.shape}, strides={self.strides}, dtype={name_of(self)}, "
                f"device={self.device}, readonly={self.readonly}, protocol={self.protocol}, "
                f"data_ptr={self.data_ptr:#x})")

    def _repr_html_(self):
        cdef DLDataType dtype = self.managed.abi.dl_tensor.dtype
        owner = self.owner
        value_bits = dtype.bits * dtype.lanes
        item_bits = 8 * self.itemsize or value_bits
        picture = load_module("dlbridge.explain.picture")       # with the first picture
        memory = picture.Memory(self.shape, self.strides, item_bits, item_bits, value_bits, name_of(self), self.device,
                                self.nbytes, self.readonly)
        return picture.of_tensor(memory, "" if owner is None else shown(type(owner), full_name), self.protocol,
                                 self.data_ptr)

    def __sizeof__(self):
        """The bytes of the object and of its block, and those of memory that dlbridge allocated for it."""
        cdef Span span = managed_span(self.managed)
        own_bytes = span.high_bytes - span.low_bytes if self.managed.owns == OWNS_MEMORY else 0
        return object.__sizeof__(self) + sizeof(Managed) + 16 * self.managed.abi.dl_tensor.ndim + own_bytes

    # ---- as an ndarray ----

    def __len__(self):
        if not self.managed.abi.dl_tensor.ndim:
            raise TypeError("Tensor: shape (): has no length (it has no axis)")
        return self.managed.abi.dl_tensor.shape[0]

    def __getitem__(self, key):
        """What an ndarray over the same memory gives: another ndarray over it, or a scalar."""
        return ndarray_of(self, None, None)[key]

    def __iter__(self):
        return iter(ndarray_of(self, None, None))

    def __bool__(self):
        return bool(only_element(self, ValueError))

    def __int__(self):
        return int(only_element(self, TypeError))

    def __float__(self):
        return float(only_element(self, TypeError))

    def __array__(self, dtype=None, copy=None):
        """An ndarray over the same memory, for dtypes of ml_dtypes too, which no other protocol of NumPy can name."""
        return ndarray_of(self, dtype, copy)

    def ravel(self):
        """The elements in one axis, as an ndarray; zarr asks arrays for it."""
        return ndarray_of(self, None, None).ravel()

    @property
    def ctypes(self):
        """The address as an ndarray has it; safetensors asks arrays for it, and reads on from there."""
        if not is_host(self.managed.abi.dl_tensor.device.device_type):
            raise no_face("ctypes", self.managed)
        array = ndarray_of(self, None, None)
        if not array.flags.c_contiguous:
            raise AttributeError(f"Tensor: strides {self.strides}: leave more than an address to be known "
                                 "(pass numpy.ascontiguousarray(x))")
        return array.ctypes

    # ---- copies and pickles ----

    def __copy__(self):
        """Another Tensor over the same memory."""
        return new_tensor(shared_in_order(self.managed), self.policy)

    def __deepcopy__(self, memo):
        """A Tensor over a copy, which is writable and on the same device.

        The copy of pinned memory is the host's and not pinned; that of managed memory is its device's.
        """
        return new_tensor(copied_where_it_is(self.managed), self.policy)

    def __reduce__(self):
        return self.__reduce_ex__(4)

    def __reduce_ex__(self, int protocol):
        """Pickle the elements, never an address."""
        sendable = find_sendable(self) if find_sendable != NULL else None
        return pickled(self, protocol) if sendable is None else (_as_sent, (sendable,))

    def __dask_tokenize__(self):
        return load_module("dlbridge.libraries.dask").token_of(self)

    # ---- DLPack ----

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A DLPack capsule that shares the memory; the array API standard's method.

        Parameters
        ----------
        stream : int, optional
            The consumer's stream, which is made to wait for the memory; None or -1 on the CPU. For CUDA None means 1,
            the legacy default stream, and 2 is the per-thread default stream. For ROCm None means 0. With -1 no stream
            is made to wait.
        max_version : tuple of int, optional
            From ``(1, 0)`` on the capsule is versioned and flags read-only memory. Otherwise it is legacy, and the
            ``readonly`` that :func:`dlbridge.asdlpack` was given says what becomes of read-only memory.
        dl_device : tuple, optional
            Where the consumer wants the memory, as ``(type, id)``.
        copy : bool, optional
            True always copies, False never copies, None copies only if a copy is needed.

        Returns
        -------
        PyCapsule

        Raises
        ------
        DeviceError
            The memory is on another device, or the stream is not one of that device.
        CopyRequiredError
            A copy is needed and ``copy=False``.
        TypeError, ValueError
            A keyword has a value that it does not take.
        """
        cdef bint versioned = wants_versioned(max_version)
        if versioned and stream is None and dl_device is None and (copy is None or copy is False) and (
                self.managed.abi.dl_tensor.device.device_type == kDLCPU):
            return new_versioned_capsule(managed_retain(self.managed))
        return export_capsule(self.managed, self.policy, versioned, stream, dl_device, copy)

    def __dlpack_device__(self):
        """The pair ``(device type, device id)``."""
        cdef DLDevice device = self.managed.abi.dl_tensor.device
        if device.device_type == kDLCPU and device.device_id == 0:
            return CPU_DEVICE
        return device.device_type, device.device_id

    # ---- host protocols ----

    def __getbuffer__(self, Py_buffer* view, int flags):
        view.obj = None
        fill_buffer(view, self.managed, flags)
        view.obj = self
        managed_retain(self.managed)        # so that the block knows that a view can write to the memory

    def __releasebuffer__(self, Py_buffer* view):
        free(view.internal)
        managed_drop_second(self.managed)

    @property
    def __array_interface__(self):
        interface = array_interface(self.managed)
        mark_address_given(self)
        return interface

    @property
    def __cuda_array_interface__(self):
        return cuda_interface(self.managed)

    @property
    def __array_struct__(self):
        return new_array_struct(self.managed)

    @property
    def __arrow_c_array__(self):
        if not has_arrow_form(self.managed):
            raise no_face("__arrow_c_array__", self.managed)
        return partial(_arrow_array, self)


# ---- pickles ---------------------------------------------------------------------------------------------------------

cdef FindSendable find_sendable = NULL


cdef void set_find_sendable(FindSendable found) noexcept:
    global find_sendable
    find_sendable = found


def by_value(Tensor tensor, int protocol):
    """What a pickle has of a Tensor that does not go to another process of this machine."""
    return pickled(tensor, protocol)


def _as_sent(Tensor sent):
    return sent


def tensor_over(
    exporter, int64_t offset_bytes, tuple shape not None, tuple strides not None, str dtype, bint padded,
    bint readonly,
):
    """A Tensor over the buffer of an exporter."""
    cdef Managed* managed = unpickled(exporter, offset_bytes, shape, strides, dtype, padded)
    managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY if readonly else 0
    return new_tensor(managed, READONLY_COPY)


cdef tuple pickled(Tensor tensor, int protocol):
    cdef int64_t offset_bytes = 0
    cdef Managed* managed = picklable(tensor.managed)
    cdef Tensor flat
    flat = new_tensor(flattened(managed, &offset_bytes), READONLY_COPY)     # it keeps the block alive
    shape, strides = managed_shape(managed), managed_strides(managed)
    padded = bool(managed.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
    flat.managed.abi.flags |= tensor.managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY      # a compact copy has no flag
    device = () if is_host(pickled_device(tensor).device_type) else (
        pickled_device(tensor).device_type, pickled_device(tensor).device_id)
    if protocol >= 5:
        return _from_buffer, (
            PyPickleBuffer_FromObject(flat), offset_bytes, shape, strides, name_of(tensor), padded, *device)
    if is_watched():
        note_copy(tensor, managed, "a pickle", f"protocol {protocol} carries bytes", "pass protocol=5")
    elements = bytes_of(managed_data(flat.managed), flat.managed.abi.dl_tensor.shape[0])
    return _from_bytes, (elements, shape, strides, name_of(tensor), padded, tensor.readonly, offset_bytes, *device)


cdef bytes bytes_of(const char* memory, Py_ssize_t nbytes):
    """The bytes of host memory; many of them in pages that are quick to get."""
    cdef bytes elements
    cdef char* into
    if nbytes < MANY:
        return PyBytes_FromStringAndSize(memory, nbytes)
    elements = PyBytes_FromStringAndSize(NULL, nbytes)
    into = PyBytes_AS_STRING(elements)
    ask_for_huge_pages(into, nbytes)
    with nogil:
        memcpy(into, memory, nbytes)
    return elements


cdef DLDevice pickled_device(Tensor tensor) noexcept:
    return tensor.remembered if tensor.remembered.device_type else tensor.managed.abi.dl_tensor.device


def _from_buffer(
    received, int64_t offset_bytes, tuple shape not None, tuple strides not None, str dtype, bint padded,
    int32_t device_type=0, int32_t device_id=0,
):
    """Unpickle a Tensor over the bytes that were received. It is read-only if they are."""
    cdef Managed* managed = unpickled(received, offset_bytes, shape, strides, dtype, padded)
    return made_again(managed, device_type, device_id)


def _from_bytes(
    bytes elements not None, tuple shape not None, tuple strides not None, str dtype, bint padded,
    bint readonly, int64_t offset_bytes=0, int32_t device_type=0, int32_t device_id=0,
):
    """Unpickle a Tensor of protocol 4 or lower, which has bytes for writable memory too.

    Few bytes are copied. Many are kept, and may be written to, as NumPy does: no other code has the bytes of a pickle
    that was read just now.
    """
    cdef Managed* managed = unpickled(elements, offset_bytes, shape, strides, dtype, padded)
    if len(elements) < FEW:
        if is_watched():
            note_copy(None, managed, "dlbridge", "a pickle of few bytes", "pass protocol=5 to pickle")
        managed = replaced(managed, COPY_SPAN)
    managed.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_READ_ONLY
    managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY if readonly else 0
    return made_again(managed, device_type, device_id)


cdef Tensor made_again(Managed* managed, int32_t device_type, int32_t device_id):
    """A Tensor that remembers the device of the pickled memory; ``device_type`` is 0 if that was the host's."""
    cdef Tensor tensor = new_tensor(managed, READONLY_COPY)
    if device_type:
        parse_device((device_type, device_id), &tensor.remembered)
    return tensor


# ---- as an ndarray ---------------------------------------------------------------------------------------------------

cdef str name_of(Tensor tensor):
    return dtype_name(tensor.managed.abi.dl_tensor.dtype)


cdef object only_element(Tensor tensor, object error):
    """The element of a Tensor that has only one, as a scalar of NumPy."""
    if managed_count(tensor.managed) != 1:
        raise error(f"Tensor: shape {tensor.shape}: has not one element (pass dlbridge.convert(x, \"numpy\") to NumPy)")
    return ndarray_of(tensor, None, None).reshape(())[()]


cdef object ndarray_of(Tensor tensor, object dtype, object copy):
    """An ndarray over the same memory, by words of the same size where NumPy's protocols cannot name the dtype."""
    cdef Managed* managed = tensor.managed
    if managed_packed(managed) or not is_host(managed.abi.dl_tensor.device.device_type):
        raise TypeError(f"Tensor: {name_of(tensor)} on {tensor.device}: is no memory of NumPy "
                        '(pass dlbridge.convert(x, "numpy", device="cpu") to NumPy)')
    if row_typestr(managed.row) is not None:
        return numpy.array(memoryview(tensor), dtype, copy=copy)
    words = new_tensor(shared_in_order(managed), READONLY_SHARE)
    managed_set_row((<Tensor> words).managed, find_sized(b"u", get_row(managed.row).item_bytes))
    return numpy.array(numpy.asarray(words).view(numpy_dtype(managed.row)), dtype, copy=copy)


cdef void mark_address_given(Tensor tensor) noexcept:
    """Hold the block once more, for a consumer that was given an address: nothing says when that consumer is done."""
    if not exchange_byte(&tensor.address_given, True):
        managed_retain(tensor.managed)


def _arrow_array(Tensor tensor, requested_schema=None):
    """What ``__arrow_c_array__()`` returns. A schema that is asked for may be ignored, and is."""
    return arrow_capsules(tensor.managed, tensor.policy)


# ---- the C exchange API ----------------------------------------------------------------------------------------------

EXCHANGE_API.header.version.major = DLPACK_MAJOR_VERSION
EXCHANGE_API.header.version.minor = DLPACK_MINOR_VERSION
EXCHANGE_API.managed_tensor_allocator = exchange_allocate
EXCHANGE_API.managed_tensor_from_py_object_no_sync = (
    <int (*)(void*, DLManagedTensorVersioned**) noexcept> exchange_export)
EXCHANGE_API.managed_tensor_to_py_object_no_sync = (
    <int (*)(DLManagedTensorVersioned*, void**) noexcept> exchange_import)
EXCHANGE_API.dltensor_from_py_object_no_sync = <int (*)(void*, DLTensor*) noexcept> exchange_borrow
EXCHANGE_API.current_work_stream = exchange_stream


cdef int exchange_allocate(
    DLTensor* prototype, DLManagedTensorVersioned** out, void* context, SetError set_error,
) noexcept with gil:
    cdef Managed* block
    out[0] = NULL
    try:
        block = new_like(prototype, 0)
        out[0] = &block.abi
    except BaseException as error:
        tell(set_error, context, error)
    return 0 if out[0] != NULL else -1


cdef void tell(SetError set_error, void* context, object error) noexcept:
    try:
        kind, text = type(error).__name__.encode(), str(error).encode()
    except BaseException:
        set_error(context, b"MemoryError", b"there was none left to say which error it was")
    else:
        set_error(context, kind, text)


cdef Managed* new_like(const DLTensor* prototype, uint64_t flags) except NULL:
    """Memory for a prototype. DLPack 1.3 says that only its dtype, ndim, shape and device count.

    The flags say whether elements below a byte are padded.
    """
    cdef Managed* like
    cdef Managed* block
    cdef DLTensor described = prototype[0]
    if not is_host(prototype.device.device_type):
        raise refusal(DeviceError, "exchange_api", "device", prototype.device.device_type, "is not the host's",
                      "allocate there with another library")
    # The description is checked and measured before there is memory, so an address that is never read stands in.
    described.data = <void*> prototype
    described.strides = NULL
    described.byte_offset = 0
    like = managed_from_tensor(PROTOCOL_DLBRIDGE, &described, flags)
    try:
        block = allocated(like, managed_nbytes(like))
    finally:
        managed_release(like)
    return managed_checked(block)


# The three that follow leave their error set, as the header of DLPack asks for.

cdef int exchange_export(void* obj, DLManagedTensorVersioned** out) except -1:
    """Give a Tensor's memory to a consumer.

    The consumer uses it on dlbridge's current_work_stream, the default stream, or lets its own stream wait for that.
    """
    cdef Managed* managed = managed_retain((<Tensor?> <object> obj).managed)
    if has_streams(managed.abi.dl_tensor.device.device_type):
        managed_drop(managed)
        managed = in_default_order((<Tensor> <object> obj).managed)
    out[0] = &managed.abi


cdef int exchange_import(DLManagedTensorVersioned* foreign, void** out) except -1:
    """Make a Tensor of foreign memory. It is stolen also on failure, as the header of DLPack says."""
    tensor = new_tensor(managed_take_versioned(PROTOCOL_DLPACK, foreign), READONLY_COPY)
    Py_INCREF(tensor)
    out[0] = <void*> tensor


cdef int exchange_borrow(void* obj, DLTensor* out) except -1:
    """Fill the caller's struct, which is valid for as long as the caller holds the object.

    A DLTensor has no flags, so read-only memory and padded elements are refused.
    """
    cdef Managed* managed = (<Tensor?> <object> obj).managed
    cdef DLDevice device
    if managed.abi.flags & (DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED):
        raise refusal(ConversionError, "exchange_api", "flags", managed.abi.flags,
                      "(read-only, or padded) cannot be told by a borrowed DLTensor",
                      "use managed_tensor_from_py_object_no_sync, which has flags")
    if has_streams(managed.abi.dl_tensor.device.device_type):
        device_operations().stream_device(managed, &device)
        device_operations().order_streams(&device, device_operations().stream_of(managed), STREAM_LEGACY_DEFAULT)
    mark_address_given(<Tensor> <object> obj)
    out[0] = managed.abi.dl_tensor


cdef int exchange_stream(int32_t device_type, int32_t device_id, void** out) noexcept:
    """dlbridge has no current stream of its own, so it names the default one."""
    out[0] = NULL
    return 0
