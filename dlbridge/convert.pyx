"""The verbs: convert(), and what DLPack's users and authors of extensions call."""

import os
import sys

from dlbridge._core.abi cimport DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION
from dlbridge._core.block cimport Managed
from dlbridge._core.calls cimport convert_as, put_in_front
from dlbridge._core.conversion cimport convert_to, is_already
from dlbridge._core.devices.table cimport has_streams
from dlbridge._core.exports cimport shared_for
from dlbridge._core.late cimport load_module
from dlbridge._core.place cimport shared_in_order
from dlbridge._core.request cimport Request, parse_request, wants_versioned
from dlbridge._core.route cimport route_to
from dlbridge._core.targets.registry cimport versioned_capsule
from dlbridge.tensor cimport Tensor, new_tensor

DLPACK_VERSION = (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION)


def convert(
    src, to, *, device=None, copy=None, stream=None, readonly="copy", detach=False, narrow=False,
    order=None, dtype=None, shape=None, out=None,
):
    """Give an array of one library to another, without copying where that is possible.

    Parameters
    ----------
    src : object
        Anything with the C exchange API, ``__dlpack__``, ``__cuda_array_interface__``, ``__array_struct__``,
        ``__array_interface__``, one of Arrow's C interfaces or the buffer protocol; a DLPack capsule, which is
        consumed; or a sparse array, whose parts are converted, for a library that has such arrays.
    to : str, module, type, array or namespace
        The target: ``"torch"``, ``torch``, ``torch.Tensor``, an array (its library and device), or any namespace with
        ``from_dlpack``. :func:`dlbridge.targets` lists the names.
    device : str, tuple or device object, optional
        Where the result shall be: ``"cpu"``, ``"cuda:1"``, ``(type, id)``, or the library's own device object or name.
        None leaves the memory where it is: memory never changes device without being asked to. Where the library
        numbers several devices of the host, as JAX can, ``"cpu"`` is any of them, and None is where the library makes
        new arrays.
    copy : bool, optional
        None copies only if the target does not support the memory as it is, False never copies, True always does.
    stream : int or stream object, optional
        The consumer's stream, numbered as in the array API standard. Host memory has no stream.
    readonly : {"copy", "share", "error"}
        What to do with memory that is read-only on one side and writable on the other: read-only memory if the target
        has no flag for it, and memory that somebody can write to, through this view or another one, if the target's
        arrays are immutable (JAX, TensorFlow, pyarrow). Copy it, share it (you promise that nothing writes to it, for
        JAX until its work on it is done, ``block_until_ready()``), or raise. All other memory is shared.
    detach : bool
        Take the data of a torch tensor that requires a gradient.
    narrow : bool
        Take the target's nearest type where it lacks a wide one (JAX without x64, MLX, Pillow): float64 becomes
        float32, complex128 complex64, and int64 int32. This rounds floating-point numbers, and is always a copy.
    order : {None, "C"}
        None leaves the strides as they are, if the target supports them. "C" gives compact memory in C order: a copy
        where it is not, also of an array of the target's own.
    dtype : str or dtype, optional
        How to see a source of bytes, such as a file's: ``"bfloat16"``, a typestr such as ``">f4"``, the dtype of a
        library such as torch, or what :class:`numpy.dtype` takes. Nothing is cast. Bytes are a buffer without a format,
        or an array of uint8 or int8 with one axis.
    shape : tuple of int, optional
        The shape of a source of bytes, in elements; one extent may be -1. Shape and dtype take all of the bytes. With a
        shape, an array of bytes in C order may have any number of axes.
    out : array, optional
        An array of the target's library in host memory, of any layout, that takes a copy and is returned. It has the
        dtype and the shape of the result, and may overlap the source.

    Returns
    -------
    array
        An array of the target's library; src itself if it is one already. It shares the memory of src and keeps it
        alive, unless a copy was needed or asked for. A copy has its own memory, writable and dense (but strides of 0
        stay in a copy that was made because of ``readonly``).

    Raises
    ------
    TypeError, ValueError
        A keyword has a value that it does not take.
    MemoryError
        A copy does not fit into the memory available.
    UnsupportedError
        src offers no protocol, the target is unknown, or ``out`` is no array of it.
    ConversionError
        The memory cannot be described for that target or by ``dtype`` and ``shape``, a value does not fit into the
        narrower type, or ``out`` cannot be written or has another dtype or shape.
    CopyRequiredError
        A copy is needed and ``copy=False``.
    DeviceError
        The memory is not on the device where it is wanted.
    DeviceMemoryError
        A copy does not fit into the memory of the device.
    MissingLibraryError
        The target's library is not installed.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> source = bytearray(8)
    >>> array = dlbridge.convert(source, "numpy")
    >>> array[0] = 7
    >>> source[0]
    7
    """
    cdef Request request
    if out is not None:
        return load_module("dlbridge._core.out").convert_into(
            src, to, dtype, shape, out, device, copy, stream, readonly, detach, narrow, order)
    parse_request(&request, device, copy, stream, readonly, detach, narrow, order)
    return convert_as(src, to, dtype, shape, &request)


def asdlpack(src, *, device=None, copy=None, stream=None, readonly="copy", detach=False):
    """Wrap any array in a :class:`Tensor`, which every library can consume.

    Parameters
    ----------
    src, device, copy, detach
        As for :func:`convert`.
    stream : int or stream object, optional
        The stream on which the memory will be used. None leaves that to the consumers: each names its own stream, or
        means the legacy default one. Host memory has no stream.
    readonly : {"copy", "share", "error"}
        What a legacy capsule of the Tensor does with read-only memory, since such a capsule has no flags. The Tensor
        itself and its versioned capsules share the memory and flag it as read-only.

    Returns
    -------
    Tensor
        It shares the memory of src and keeps it alive, unless a copy was needed (bytes in the other order, strides that
        are not multiples of the item size) or asked for. A Tensor is returned as it is.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> tensor = dlbridge.asdlpack(b"Hello!")
    >>> numpy.from_dlpack(tensor).tobytes(), tensor.readonly
    (b'Hello!', True)
    """
    cdef Request request
    cdef Tensor tensor
    parse_request(&request, device, copy, stream, readonly, detach, False, None)
    if type(src) is Tensor and is_already(src, route_to(src, "dlbridge", &request), &request):
        return tensor_for(src, &request)
    tensor = convert_to(src, "dlbridge", &request)
    tensor.policy = request.readonly
    return tensor


cdef Tensor tensor_for(Tensor tensor, const Request* request):
    """The Tensor itself, or a new Tensor over its memory with another policy or for another stream."""
    cdef bint streams = has_streams(tensor.managed.abi.dl_tensor.device.device_type)
    cdef Managed* managed
    if tensor.policy == request.readonly and not (streams and request.has_stream):
        return tensor
    managed = shared_for(tensor.managed, request) if streams else shared_in_order(tensor.managed)
    return new_tensor(managed, request.readonly)


def from_dlpack(x, /, *, device=None, copy=None):
    """The array API standard's function: a :class:`Tensor` over the memory of ``x``.

    Parameters
    ----------
    x : object
        As for :func:`asdlpack`: arrays without ``__dlpack__`` and capsules are taken too.
    device, copy
        As in the standard, and as for :func:`convert`.

    Returns
    -------
    Tensor
        It shares the memory of x and keeps it alive, unless a copy was needed or asked for.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> dlbridge.from_dlpack(numpy.arange(3)).shape
    (3,)
    """
    return asdlpack(x, device=device, copy=copy)


def to_dlpack(src, *, stream=None, max_version=None, readonly="copy"):
    """Put any array into a DLPack capsule, for one consumer.

    Parameters
    ----------
    src : object
        As for :func:`convert`.
    stream : int or stream object, optional
        The consumer's stream.
    max_version : tuple of int, optional
        From ``(1, 0)`` on the capsule is a "dltensor_versioned", which flags read-only memory; otherwise it is a
        "dltensor".
    readonly : {"copy", "share", "error"}
        What to do with read-only memory in a "dltensor", which cannot flag it.

    Returns
    -------
    PyCapsule
        It shares the memory of src and keeps it alive until its consumer releases it.

    Raises
    ------
    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> capsule = dlbridge.to_dlpack(numpy.zeros(3))
    >>> dlbridge.convert(capsule, "numpy").sum()
    np.float64(0.0)
    """
    cdef Request request
    parse_request(&request, None, None, stream, readonly, False, False, None)
    return convert_to(src, versioned_capsule() if wants_versioned(max_version) else "dlpack", &request)


def from_pointer(address, shape, dtype, *, strides=None, device="cpu", readonly=False, owner=None, stream=None):
    """Describe memory by its address, as a :class:`Tensor` that every library can consume.

    The caller is trusted: it cannot be checked that the address is readable, for as many bytes as shape and strides
    reach.

    Parameters
    ----------
    address : int
        Where the first element is: ``ctypes.addressof(x)`` of an array or a structure of ctypes,
        ``ctypes.cast(p, ctypes.c_void_p).value`` of a pointer, or ``int(ffi.cast("uintptr_t", p))`` of cffi.
    shape : tuple of int
        In elements.
    dtype : str or dtype
        ``"float32"``, ``"bfloat16"``, a typestr such as ``"<f4"``, or what :class:`numpy.dtype` takes.
    strides : tuple of int, optional
        In elements. None is compact memory in C order.
    device : str, tuple or device object
        Where the memory is, as for :func:`convert`. ``"cuda"`` is device 0.
    readonly : bool
        Whether the memory must not be written to. Other code may write to it all the same, so that a library whose
        arrays are immutable gets a copy unless it is shared by ``readonly="share"``.
    owner : object, optional
        The object that keeps the memory alive. It is released with the last array over the memory, and not called:
        memory that must be freed needs an owner with ``__del__``. Without an owner the memory has to outlive all arrays
        over it.
    stream : int or stream object, optional
        The stream on which device memory is ready, as for :func:`convert`. None is the legacy default stream.

    Returns
    -------
    Tensor
        It shares the memory.

    Raises
    ------
    TypeError, ValueError
        An argument has a value that it does not take.
    ConversionError
        The memory cannot be described: its extents, dtype or address cannot be right.
    DeviceError
        The device is unknown, or a stream was given for memory of the host.

    Examples
    --------
    >>> import ctypes, dlbridge
    >>> frame = (ctypes.c_uint16 * 12)(*range(12))
    >>> tensor = dlbridge.from_pointer(ctypes.addressof(frame), (3, 4), "uint16", owner=frame)
    >>> dlbridge.convert(tensor, "numpy")[1]
    array([4, 5, 6, 7], dtype=uint16)
    """
    return load_module("dlbridge._core.described").tensor_at(
        address, shape, dtype, strides, device, readonly, owner, stream)


def empty(shape, dtype="float64"):
    """New memory of the host that every library can share: aligned to 256 bytes, compact, writable, with any values.

    JAX shares memory only if it is aligned to 64 bytes, which NumPy's seldom is; and, as every library whose arrays are
    immutable, memory that can be written only with ``readonly="share"``.

    Parameters
    ----------
    shape : int or tuple of int
        In elements.
    dtype : str or dtype
        As for :func:`from_pointer`; elements below a byte are packed.

    Returns
    -------
    Tensor

    Raises
    ------
    TypeError
        The shape is no tuple of integers.
    ConversionError
        The shape or the dtype cannot be described.
    MemoryError
        The system does not have so much memory.

    Examples
    --------
    >>> import dlbridge
    >>> batch = dlbridge.empty((2, 3), "float32")
    >>> view = dlbridge.convert(batch, "numpy")
    >>> view[:] = 7
    >>> batch.data_ptr % 256, view.flags.writeable
    (0, True)
    """
    return load_module("dlbridge._core.described").new_tensor_of(shape, dtype)


def get_include():
    """The folder of ``dlbridge.h``, for the compiler of an extension.

    Examples
    --------
    >>> import dlbridge, os
    >>> os.listdir(dlbridge.get_include())
    ['dlbridge.h']
    """
    return os.path.join(os.path.dirname(__file__), "include")


put_in_front(sys.modules[__name__], convert, asdlpack)
