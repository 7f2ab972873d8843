"""Memory that other processes of the machine can map, and that goes to them without being copied."""

from collections.abc import Iterable
from typing import Any, SupportsIndex

from dlbridge._core.late import load_module
from dlbridge.convert import asdlpack
from dlbridge.errors import DeviceError, refusal
from dlbridge.tensor import Tensor
from dlbridge.typing import Device, DType


def shared(x: object, *, device: Device | None = None, readonly: bool = False) -> Tensor:
    """Copy an array once, into memory that other processes can map. It then goes to them without another copy.

    Such a Tensor, and any Tensor over a part of its memory, is sent by ``multiprocessing`` (queues, pipes, arguments,
    pools), ``concurrent.futures``, torch's ``DataLoader`` and joblib as the descriptor of the memory. Both processes
    then see each other's writes. The sender has to live until the receiver has unpickled it.

    Parameters
    ----------
    x : object
        As for :func:`convert`.
    device : str, tuple or device object, optional
        ``"cpu"`` fetches memory of a GPU.
    readonly : bool
        True gives memory that nobody can write to any more, in any process, where the system has that (Linux). JAX
        shares it, in this process and in others.

    Returns
    -------
    Tensor
        Compact, unless x is dense in another order, which it keeps. If x is in such memory already, a Tensor over x,
        which is x itself if that is a Tensor; with ``readonly`` only if nobody can write to it. Without elements there
        is nothing to copy, either.

    Raises
    ------
    MemoryError
        The memory does not suffice.
    OSError
        No descriptor is left for this process, or for the system.
    DeviceError
        The memory is on a GPU, and ``device`` does not say ``"cpu"``.

    As :func:`convert` does.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> batch = dlbridge.shared(numpy.arange(6).reshape(2, 3))
    >>> dlbridge.convert(batch, "numpy")[1]
    array([3, 4, 5])
    >>> dlbridge.shared(batch) is batch
    True
    """
    segment = prepared()
    tensor = asdlpack(x, device=device)
    if not segment.is_on_host(tensor):
        raise refusal(DeviceError, "shared", "device", tensor.device, "is not the host", 'pass device="cpu"')
    if not tensor.size or segment.is_shared(tensor, readonly):
        return tensor
    made: Tensor = segment.shared_copy(asdlpack(tensor, device="cpu"), readonly)      # the host waits for pinned memory
    return made


def shared_empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: DType = "float64") -> Tensor:
    """New memory that other processes can map, of zeros: writable, compact, and aligned to 4096 bytes.

    Parameters
    ----------
    shape, dtype
        As for :func:`empty`.

    Returns
    -------
    Tensor
        It is sent to other processes as that of :func:`shared`.

    Raises
    ------
    As :func:`empty` and :func:`shared` do.

    Examples
    --------
    >>> import dlbridge
    >>> frame = dlbridge.shared_empty((1080, 1920, 3), "uint8")
    >>> view = dlbridge.convert(frame, "numpy")
    >>> view[0] = 255
    >>> frame.data_ptr % 4096, int(view.max())
    (0, 255)
    """
    made: Tensor = prepared().shared_zeros(shape, dtype)
    return made


def prepared() -> Any:
    """The module of the segments, once picklers were told of it."""
    load_module("dlbridge.processes.sending").tell_picklers()
    return load_module("dlbridge.processes.segment")
