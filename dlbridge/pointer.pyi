"""from_pointer(): memory that a foreign library gives as an address."""

from collections.abc import Iterable
from typing import Any, SupportsIndex

from dlbridge import Tensor
from dlbridge.convert import _Device, _Stream

__test__: dict[str, str]

def from_pointer(
    address: SupportsIndex,
    shape: Iterable[SupportsIndex],
    dtype: Any,
    *,
    strides: Iterable[SupportsIndex] | None = None,
    device: _Device = "cpu",
    readonly: bool = False,
    owner: object = None,
    stream: _Stream | None = None,
) -> Tensor:
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
        Whether the memory must not be written to.
    owner : object, optional
        What keeps the memory alive. The last array over it releases the owner, which is not called: what must be
        freed has an owner with ``__del__``. Without an owner the memory has to outlive all arrays over it.
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
