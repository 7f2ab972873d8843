"""Tensor: one Managed that speaks every protocol."""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_C_CONTIGUOUS,
    PyBUF_F_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_IsContiguous,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetObject
from cpython.long cimport PyLong_Check
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetPointer, PyCapsule_New, PyCapsule_SetContext
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc

from dlbridge._core.abi cimport (
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
    DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION,
    EXCHANGE_NAME,
    STREAM_LEGACY_DEFAULT,
    STREAM_PER_THREAD_DEFAULT,
    STREAM_UNORDERED,
    DLDataType,
    DLDevice,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLTensor,
    SetError,
    kDLCPU,
    kDLROCM,
)
from dlbridge._core.arrow_capsule cimport has_arrow_form, new_arrow_capsules
from dlbridge._core.block cimport (
    OWNS_MEMORY,
    PROTOCOL_DLBRIDGE,
    PROTOCOL_DLPACK,
    Managed,
    Protocol,
    integers,
    managed_checked,
    managed_count,
    managed_data,
    managed_drop,
    managed_drop_second,
    managed_from_tensor,
    managed_item_bytes,
    managed_made_lendable,
    managed_nbytes,
    managed_new,
    managed_owner,
    managed_packed,
    managed_release,
    managed_retain,
    managed_set_row,
    managed_shape,
    managed_share,
    managed_span,
    managed_strides,
    managed_take_versioned,
    protocol_name,
)
from dlbridge._core.capsule cimport new_legacy_capsule, new_versioned_capsule
from dlbridge._core.devices.operations cimport device_operations
from dlbridge._core.devices.table cimport Operations, device_name, has_streams, is_host, parse_device, same_device
from dlbridge._core.dtypes cimport dtype_name, find_name, find_sized, get_row, numpy_dtype, row_typestr
from dlbridge._core.layout cimport LENGTH_1, STRIDED, Span
from dlbridge._core.pickling cimport flattened, picklable, unpickled
from dlbridge._core.place cimport (
    COPY,
    COPY_SPAN,
    FETCH,
    IN_C_ORDER,
    TO_HOST_LABEL,
    allocated,
    pack_steps,
    place,
    separate_steps,
)
from dlbridge._core.request cimport (
    READONLY_COPY,
    READONLY_ERROR,
    READONLY_SHARE,
    ReadonlyPolicy,
    keeps_handle,
    parse_stream,
    wants_versioned,
)
from dlbridge._core.sources.array_struct cimport (
    ARRAY_STRUCT_C_CONTIGUOUS,
    ARRAY_STRUCT_NOTSWAPPED,
    ARRAY_STRUCT_VERSION,
    ARRAY_STRUCT_WRITEABLE,
    PyArrayInterface,
)

from functools import partial

import numpy

from dlbridge.errors import (
    ConversionError,
    CopyRequiredError,
    DeviceError,
    MissingLibraryError,
    full_name,
    refusal,
    shown,
)

cdef extern from "Python.h":
    object PyPickleBuffer_FromObject(object exporter)

cdef enum:
    FEW = 1 << 10               # fewer bytes are copied, which is faster than keeping the received ones


cdef DLPackExchangeAPI EXCHANGE_API         # filled at the end of this file
cdef tuple CPU_DEVICE = (<int> kDLCPU, 0)   # made once, since every consumer asks before it takes


cdef Managed* new_nothing() except NULL:
    cdef Managed* managed = managed_new(PROTOCOL_DLBRIDGE, 1)
    managed.abi.dl_tensor.shape[0] = 0
    managed.abi.dl_tensor.strides[0] = 1
    managed_set_row(managed, find_name("uint8"))
    return managed_checked(managed)


cdef Managed* NOTHING = managed_made_lendable(new_nothing())


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
        from dlbridge.explain import picture    # imported with the first picture

        cdef DLDataType dtype = self.managed.abi.dl_tensor.dtype
        owner = self.owner
        value_bits = dtype.bits * dtype.lanes
        item_bits = 8 * self.itemsize or value_bits
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
        """A Tensor over a copy, on the same device. It is writable."""
        return new_tensor(copied_where_it_is(self.managed), self.policy)

    def __reduce__(self):
        return self.__reduce_ex__(4)

    def __reduce_ex__(self, int protocol):
        """Pickle the elements, never an address."""
        return pickled(self, protocol)

    def __dask_tokenize__(self):
        from dlbridge.libraries.dask import token_of        # imported with the first token

        return token_of(self)

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
        return export_capsule(self, versioned, stream, dl_device, copy)

    def __dlpack_device__(self):
        """The pair ``(device type, device id)``."""
        cdef DLDevice device = self.managed.abi.dl_tensor.device
        if device.device_type == kDLCPU and device.device_id == 0:
            return CPU_DEVICE
        return device.device_type, device.device_id

    # ---- host protocols ----

    def __getbuffer__(self, Py_buffer* view, int flags):
        fill_buffer(view, self, flags)
        managed_retain(self.managed)        # so that the block knows that a view can write to the memory

    def __releasebuffer__(self, Py_buffer* view):
        free(view.internal)
        managed_drop_second(self.managed)

    @property
    def __array_interface__(self):
        typestr = host_typestr(self, "__array_interface__")
        mark_address_given(self)
        return {
            "shape": self.shape,
            "typestr": typestr,
            "descr": [("", typestr)],
            "data": (self.data_ptr, self.readonly),
            "strides": interface_strides(self.managed),
            "version": 3,
        }

    @property
    def __cuda_array_interface__(self):
        if not has_streams(self.managed.abi.dl_tensor.device.device_type):
            raise no_face("__cuda_array_interface__", self.managed)
        return cuda_interface(self.managed)

    @property
    def __array_struct__(self):
        host_typestr(self, "__array_struct__")
        return new_array_struct(self.managed)

    @property
    def __arrow_c_array__(self):
        if not has_arrow_form(self.managed):
            raise no_face("__arrow_c_array__", self.managed)
        return partial(_arrow_array, self)


# ---- pickles ---------------------------------------------------------------------------------------------------------

cdef tuple pickled(Tensor tensor, int protocol):
    """A function that makes the Tensor again, and its arguments. From protocol 5 on, no element is copied for it."""
    cdef int64_t offset_bytes = 0
    cdef Managed* managed = picklable(tensor.managed)
    cdef Tensor flat
    padded = bool(managed.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
    try:
        shape, strides = managed_shape(managed), managed_strides(managed)
    except BaseException:
        managed_release(managed)
        raise
    flat = new_tensor(flattened(managed, &offset_bytes), READONLY_COPY)
    flat.managed.abi.flags |= tensor.managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY      # a compact copy has no flag
    device = () if is_host(pickled_device(tensor).device_type) else (
        pickled_device(tensor).device_type, pickled_device(tensor).device_id)
    if protocol >= 5:
        return _from_buffer, (
            PyPickleBuffer_FromObject(flat), offset_bytes, shape, strides, name_of(tensor), padded, *device)
    elements = PyBytes_FromStringAndSize(managed_data(flat.managed), flat.managed.abi.dl_tensor.shape[0])
    return _from_bytes, (elements, shape, strides, name_of(tensor), padded, tensor.readonly, offset_bytes, *device)


cdef DLDevice pickled_device(Tensor tensor) noexcept:
    return tensor.remembered if tensor.remembered.device_type else tensor.managed.abi.dl_tensor.device


def _from_buffer(
    received, int64_t offset_bytes, tuple shape, tuple strides, str dtype, bint padded, int32_t device_type=0,
    int32_t device_id=0,
):
    """Unpickle a Tensor over the bytes that were received. It is read-only if they are."""
    cdef Managed* managed = unpickled(received, offset_bytes, shape, strides, dtype, padded)
    return made_again(managed, device_type, device_id)


def _from_bytes(
    bytes elements, tuple shape, tuple strides, str dtype, bint padded, bint readonly, int64_t offset_bytes=0,
    int32_t device_type=0, int32_t device_id=0,
):
    """Unpickle a Tensor of protocol 4 or lower, which has bytes for writable memory too.

    A few of them are copied. Many are taken as they are, as NumPy does: no other code has what was unpickled just now.
    """
    cdef Managed* managed = unpickled(elements, offset_bytes, shape, strides, dtype, padded)
    if len(elements) < FEW:
        managed = place(managed, COPY_SPAN, NULL)
    managed.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_READ_ONLY
    managed.abi.flags |= DLPACK_FLAG_BITMASK_READ_ONLY if readonly else 0
    return made_again(managed, device_type, device_id)


cdef Tensor made_again(Managed* managed, int32_t device_type, int32_t device_id):
    """``device_type`` is 0 if the memory was the host's."""
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


cdef object host_typestr(Tensor tensor, str face):
    """The typestr of memory that the CPU may read from now on.

    Memory that a host protocol cannot describe raises AttributeError, so that hasattr() is False.
    """
    cdef Managed* managed = tensor.managed
    typestr = row_typestr(managed.row)
    if typestr is None or not is_host(managed.abi.dl_tensor.device.device_type):
        raise no_face(face, managed)
    await_for_cpu(managed)
    return typestr


cdef object no_face(str face, const Managed* managed):
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    return AttributeError(
        f"{face}: {dtype_name(tensor.dtype)} on {device_name(tensor.device)}: has no such face (use __dlpack__)")


cdef object interface_strides(const Managed* managed):
    """Strides in bytes, or None where they say nothing more than C order, which some consumers ask for (Pillow)."""
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    if not managed.marks & (STRIDED | LENGTH_1):
        return None
    return integers(tensor.strides, tensor.ndim, managed_item_bytes(managed))


cdef void mark_address_given(Tensor tensor) noexcept:
    """Hold the block for a consumer that is told an address, since nothing says when it is done with that."""
    if not tensor.address_given:
        tensor.address_given = True
        managed_retain(tensor.managed)


cdef dict cuda_interface(Managed* managed):
    """The dictionary of __cuda_array_interface__ 3.

    Its stream is the one on which the memory is ready, or None where the consumer need not wait.
    """
    cdef const DLTensor* tensor = &managed.abi.dl_tensor
    cdef int64_t stream = device_operations().stream_of(managed)
    typestr = row_typestr(managed.row)
    if typestr is None:
        raise no_face("__cuda_array_interface__", managed)
    strides = integers(tensor.strides, tensor.ndim, managed_item_bytes(managed)) if managed_count(managed) else None
    return {
        "shape": managed_shape(managed),
        "typestr": typestr,
        "descr": [("", typestr)],
        "data": (<size_t> managed_data(managed), bool(managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY)),
        "strides": strides,         # with those of an empty array, CuPy would look for its device at the address 0
        "stream": None if stream == STREAM_UNORDERED else stream,
        "version": 3,
    }


# ---- export ----------------------------------------------------------------------------------------------------------

cdef object export_capsule(Tensor tensor, bint versioned, object stream, object dl_device, object copy):
    """A capsule for a consumer that asks for more than the memory as it is, or that takes legacy capsules only."""
    cdef int32_t steps = export_device(tensor.managed, stream, dl_device)
    cdef Managed* managed
    if copy is not None and copy is not True and copy is not False:
        raise ValueError(f"dlpack: copy {shown(copy)}: is not one of None, True and False (None copies only if needed)")
    if copy is True:
        on_host = is_host(tensor.managed.abi.dl_tensor.device.device_type) or steps & FETCH
        steps |= COPY if on_host else <int32_t> COPY_SPAN
    if steps & FETCH and copy is False:
        raise refusal(CopyRequiredError, "dlpack", "copy", False,
                      f"but memory on {tensor.device} must be copied to the CPU", "pass copy=None")
    if not versioned:
        steps |= legacy_steps(tensor.managed, tensor.policy, copy, steps)
    managed = managed_share(tensor.managed)
    if has_streams(managed.abi.dl_tensor.device.device_type):
        order_export(managed, tensor.managed, steps, stream)
    if steps:
        managed = place(managed, steps, NULL)
    return new_versioned_capsule(managed) if versioned else new_legacy_capsule(managed)


def _arrow_array(Tensor tensor, requested_schema=None):
    """What ``__arrow_c_array__()`` returns. A schema that is asked for may be ignored, and is."""
    cdef Managed* managed = shared_in_order(tensor.managed)
    cdef int32_t steps
    try:
        await_for_cpu(managed)
        steps = arrow_steps(managed, tensor.policy)
    except BaseException:
        managed_release(managed)
        raise
    return new_arrow_capsules(place(managed, steps, NULL) if steps else managed)


cdef int32_t arrow_steps(const Managed* managed, ReadonlyPolicy policy) except -1:
    """The steps to an array of Arrow, which is compact and aligned, and must not change."""
    if managed.marks or <size_t> managed_data(managed) % managed_item_bytes(managed):
        return COPY | IN_C_ORDER
    if managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY or policy == READONLY_SHARE or not managed_count(managed):
        return 0
    if policy == READONLY_ERROR:
        raise refusal(ConversionError, "arrow", "readonly", '"error"',
                      "the memory is writable, and the arrays of Arrow must not change",
                      'pass readonly="copy", or "share" and do not write')
    return COPY


cdef Managed* shared_in_order(Managed* base) except NULL:
    """A new block over the same memory, for a use that waits for the work on it."""
    cdef Managed* managed = managed_share(base)
    try:
        if has_streams(managed.abi.dl_tensor.device.device_type):
            device_operations().inherit(managed, base)
    except BaseException:
        managed_release(managed)
        raise
    return managed


cdef Managed* copied_where_it_is(Managed* base) except NULL:
    cdef bint on_host = is_host(base.abi.dl_tensor.device.device_type)
    return place(shared_in_order(base), COPY if on_host else <int32_t> COPY_SPAN, NULL)


cdef int await_for_cpu(Managed* managed) except -1:
    """Wait until the producer's work on pinned memory is done, since the host protocols have no stream.

    Their consumer reads the memory as soon as it has the address.
    """
    if managed.abi.dl_tensor.device.device_type != kDLCPU and has_streams(managed.abi.dl_tensor.device.device_type):
        return device_operations().await_producer(managed)
    return 0


cdef int order_export(Managed* managed, const Managed* base, int32_t steps, object stream) except -1:
    """Let the stream that a consumer names wait for the memory; on failure the block is released."""
    cdef int64_t number = STREAM_LEGACY_DEFAULT
    cdef Operations* operations = device_operations()
    try:
        if stream is not None:
            number = consumer_number(stream, managed.abi.dl_tensor.device.device_type)
        operations.inherit(managed, base)
        if number == STREAM_UNORDERED or not steps & (TO_HOST_LABEL | FETCH):
            # The standard's streams are integers. A stream that is given as an object is kept alive.
            return operations.order_consumer(managed, number, stream if keeps_handle(stream) else None, False)
        return operations.await_producer(managed) if steps & TO_HOST_LABEL else 0
    except BaseException:
        managed_release(managed)
        raise


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


cdef int32_t export_device(const Managed* managed, object stream, object dl_device) except -1:
    """The steps that bring memory to where the consumer wants it, or an error. Pinned memory can pass for the CPU's."""
    cdef const DLDevice* device = &managed.abi.dl_tensor.device
    cdef DLDevice wanted
    if stream is not None and not is_unordered(stream):
        check_stream(stream, device.device_type)
    if dl_device is None:
        return 0
    parse_device(dl_device, &wanted)
    if same_device(&wanted, device):
        return 0
    if wanted.device_type == kDLCPU and is_host(device.device_type):
        return TO_HOST_LABEL
    if wanted.device_type == kDLCPU and has_streams(device.device_type):
        return FETCH
    raise refusal(DeviceError, "dlpack", "dl_device", dl_device,
                  f"is not where the memory is, {device_name(device[0])}", "convert() it there first")


cdef int check_stream(object stream, int32_t device_type) except -1:
    """Refuse any stream for memory of the host, and for devices without streams what is not even a number."""
    cdef bint on_host = is_host(device_type)
    if (on_host or not has_streams(device_type)) and (not PyLong_Check(stream) or type(stream) is bool):
        parse_stream(stream, "dlpack")
    if on_host:
        raise refusal(DeviceError, "dlpack", "stream", stream, "has no meaning on the CPU", "pass stream=None")
    return 0


cdef bint is_unordered(object stream):
    return PyLong_Check(stream) and stream == STREAM_UNORDERED


cdef int32_t legacy_steps(Managed* managed, ReadonlyPolicy policy, object copy, int32_t steps) except -1:
    """The steps that a legacy capsule needs, since it can flag neither read-only memory nor padded elements."""
    cdef int32_t needed = 0
    if managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY and policy != READONLY_SHARE and not steps & COPY:
        if policy == READONLY_ERROR:
            raise refusal(ConversionError, "dlpack", "max_version", None,
                          "asks for a legacy capsule, which cannot flag read-only memory",
                          'pass max_version=(1, 0), or make the Tensor with readonly="share" and do not write')
        on_host = is_host(managed.abi.dl_tensor.device.device_type)
        needed = separate_steps(managed) if on_host else <int32_t> COPY_SPAN
    if managed.abi.flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED:
        needed = pack_steps(managed)
    if needed and copy is False:
        raise refusal(CopyRequiredError, "dlpack", "copy", False,
                      "but a legacy capsule cannot flag what this memory is (read-only, or padded)",
                      'pass max_version=(1, 0), or readonly="share"')
    return needed


cdef int fill_buffer(Py_buffer* view, Tensor tensor, int flags) except -1:
    """Fill a Py_buffer.

    PEP 3118: a field that the consumer did not ask for is NULL, and the consumer then assumes its default. So the
    memory has to be what the defaults say.
    """
    cdef Managed* managed = tensor.managed
    view.obj = None
    check_buffer(tensor, flags)
    await_for_cpu(managed)
    view.internal = new_extents(managed)
    describe_buffer(view, managed)
    if not is_layout_asked_for(view, flags):
        free(view.internal)
        raise refusal(ConversionError, "buffer", "strides", tensor.strides, "are not the contiguous ones asked for",
                      "ask for PyBUF_STRIDES, or make it contiguous first")
    if flags & PyBUF_STRIDES != PyBUF_STRIDES:
        view.strides = NULL
    if flags & PyBUF_ND != PyBUF_ND:
        view.ndim, view.shape = 1, NULL         # bytes side by side; hashlib refuses more axes
    if flags & PyBUF_FORMAT != PyBUF_FORMAT:
        view.format = NULL
    view.obj = tensor
    return 0


cdef int check_buffer(Tensor tensor, int flags) except -1:
    """Refuse memory that the protocol cannot describe, and read-only memory if the consumer asks to write."""
    cdef Managed* managed = tensor.managed
    if get_row(managed.row).format == NULL or managed_packed(managed) or not is_host(
            managed.abi.dl_tensor.device.device_type):
        raise refusal(ConversionError, "buffer", "dtype", f"{name_of(tensor)} on {tensor.device}",
                      "has no PEP 3118 form", "use __dlpack__")
    if flags & PyBUF_WRITABLE and managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY:
        raise refusal(ConversionError, "buffer", "flags", "PyBUF_WRITABLE", "asks for more than read-only memory gives",
                      "ask for a read-only buffer")
    return 0


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


cdef object new_array_struct(Managed* base):
    """NumPy's C structure in a capsule without a name. The capsule's context is a block that keeps the memory."""
    cdef int32_t ndim = base.abi.dl_tensor.ndim
    cdef int32_t axis
    cdef int64_t item_bytes = managed_item_bytes(base)
    cdef Managed* managed = managed_share(base)
    cdef PyArrayInterface* interface = <PyArrayInterface*> malloc(
        sizeof(PyArrayInterface) + 2 * ndim * sizeof(Py_ssize_t))
    if interface == NULL:
        managed_release(managed)
        raise MemoryError
    interface.two = ARRAY_STRUCT_VERSION
    interface.nd = ndim
    interface.typekind = get_row(managed.row).kind
    interface.itemsize = <int> item_bytes
    interface.flags = ARRAY_STRUCT_NOTSWAPPED
    if not managed.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY:
        interface.flags |= ARRAY_STRUCT_WRITEABLE
    if not managed.marks & STRIDED:
        interface.flags |= ARRAY_STRUCT_C_CONTIGUOUS
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


# ---- the C exchange API ----------------------------------------------------------------------------------------------

EXCHANGE_API.header.version.major = DLPACK_MAJOR_VERSION
EXCHANGE_API.header.version.minor = DLPACK_MINOR_VERSION
EXCHANGE_API.header.prev_api = NULL
EXCHANGE_API.managed_tensor_allocator = exchange_allocate
EXCHANGE_API.managed_tensor_from_py_object_no_sync = exchange_export
EXCHANGE_API.managed_tensor_to_py_object_no_sync = exchange_import
EXCHANGE_API.dltensor_from_py_object_no_sync = exchange_borrow
EXCHANGE_API.current_work_stream = exchange_stream


cdef int exchange_allocate(
    DLTensor* prototype, DLManagedTensorVersioned** out, void* context, SetError set_error,
) noexcept with gil:
    cdef Managed* made
    out[0] = NULL
    try:
        made = new_like(prototype, 0)
        out[0] = &made.abi
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
    cdef Managed* made
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
        made = allocated(like, managed_nbytes(like))
    finally:
        managed_release(like)
    return managed_checked(made)


cdef int exchange_export(void* obj, DLManagedTensorVersioned** out) noexcept:
    """Give a Tensor's memory to a consumer.

    The consumer uses it on dlbridge's current_work_stream, the default stream, or lets its own stream wait for that.
    """
    cdef Managed* managed
    cdef int outcome = 0
    try:
        managed = managed_retain((<Tensor?> <object> obj).managed)
        if has_streams(managed.abi.dl_tensor.device.device_type):
            managed_drop(managed)
            managed = managed_share((<Tensor> <object> obj).managed)
            order_export(managed, (<Tensor> <object> obj).managed, 0, None)
        out[0] = &managed.abi
    except BaseException as error:
        outcome = set_pending(error)
    return outcome


cdef int exchange_import(DLManagedTensorVersioned* foreign, void** out) noexcept:
    """Make a Tensor of foreign memory. It is stolen also on failure, as the header of DLPack says."""
    cdef int outcome = 0
    try:
        tensor = new_tensor(managed_take_versioned(PROTOCOL_DLPACK, foreign), READONLY_COPY)
        Py_INCREF(tensor)
        out[0] = <void*> tensor
    except BaseException as error:
        outcome = set_pending(error)
    return outcome


cdef int exchange_borrow(void* obj, DLTensor* out) noexcept:
    """Fill the caller's struct, which is valid for as long as the caller holds the object.

    A DLTensor has no flags, so read-only memory and padded elements are refused.
    """
    cdef Managed* managed
    cdef DLDevice device
    cdef int outcome = 0
    try:
        managed = (<Tensor?> <object> obj).managed
        if managed.abi.flags & (DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED):
            raise refusal(ConversionError, "exchange_api", "flags", managed.abi.flags,
                          "(read-only, or padded) cannot be told by a borrowed DLTensor",
                          "use managed_tensor_from_py_object_no_sync, which has flags")
        if has_streams(managed.abi.dl_tensor.device.device_type):
            device_operations().stream_device(managed, &device)
            device_operations().order_streams(&device, device_operations().stream_of(managed), STREAM_LEGACY_DEFAULT)
        mark_address_given(<Tensor> <object> obj)
        out[0] = managed.abi.dl_tensor
    except BaseException as error:
        outcome = set_pending(error)
    return outcome


cdef int exchange_stream(int32_t device_type, int32_t device_id, void** out) noexcept:
    """dlbridge has no current stream of its own, so it names the default one."""
    out[0] = NULL
    return 0


cdef int set_pending(object error) noexcept:
    PyErr_SetObject(type(error), error)
    return -1
