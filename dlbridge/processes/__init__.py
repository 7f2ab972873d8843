"""Memory that other processes of the machine can map, and that goes to them without being copied."""

from collections.abc import Iterable
from typing import Any, SupportsIndex

from dlbridge._core.late import load_module
from dlbridge.convert import asdlpack
from dlbridge.errors import CopyRequiredError, refusal, shown
from dlbridge.tensor import Tensor
from dlbridge.typing import Device, DType


def shared(x: object, *, device: Device | None = None, copy: bool | None = None, readonly: bool = False) -> Tensor:
    """Copy an array once, into memory that other processes can map. It then goes to them without another copy.

    Such a Tensor, and any Tensor over a part of its memory, is sent by ``multiprocessing`` (queues, pipes, arguments,
    pools), ``concurrent.futures``, torch's ``DataLoader`` and joblib as the descriptor of the memory. Both processes
    then see each other's writes. The sender has to live until the receiver has unpickled it.

    Parameters
    ----------
    x : object
        As for :func:`convert`.
    device : str, tuple or device object, optional
        Where the memory is to be; None leaves it on x's device. Of GPUs those of CUDA have such memory, on Linux, in
        pages of mostly 2 MiB. A smaller array of a GPU, unless it is ``readonly``, and any of another GPU is sent by
        value, and arrives on the host. Memory of one GPU does not go to another: that is an error.
    copy : bool, optional
        True always copies, and False never: memory that other processes cannot map is then an error.
    readonly : bool
        True gives memory that nobody can write to any more, in any process, where there is such memory (of the host,
        on Linux). JAX shares it, in this process and in others. Elsewhere it is a copy that is flagged as read-only.

    Returns
    -------
    Tensor
        Compact, unless x is dense in another order, which it keeps. A copy on a GPU has the strides of x, and all bytes
        between its first and its last element. If x is in such memory already, a Tensor over x, which is x itself if
        that is a Tensor; with ``readonly`` only if nobody can write to it. Without elements there is nothing to copy,
        either.

    Raises
    ------
    MemoryError
        The memory does not suffice.
    OSError
        No descriptor is left for this process, or for the system.
    CopyRequiredError
        x is in other memory, and ``copy`` is False.
    DeviceError
        The device is none whose memory can be sent.

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
    if copy is not None and not isinstance(copy, bool):
        raise TypeError(f"shared: copy {shown(copy)}: is not one of None, True and False (None copies only if needed)")
    if not isinstance(readonly, bool):
        raise TypeError(f"shared: readonly {shown(readonly)}: is neither True nor False (pass one)")
    segment = prepared("segment")
    if device is not None and segment.names_gpu(device):
        return on_gpu(asdlpack(x), device, copy, readonly)
    tensor = asdlpack(x, device=device, copy=False if copy is False else None)
    if not segment.is_on_host(tensor):
        return on_gpu(tensor, None, copy, readonly)
    if stays(tensor, copy, readonly):
        return tensor
    made: Tensor = segment.shared_copy(asdlpack(tensor, device="cpu"), readonly)      # the host waits for pinned memory
    return made


def on_gpu(tensor: Tensor, device: Device | None, copy: bool | None, readonly: bool) -> Tensor:
    there = prepared("device_segment")
    if prepared("segment").is_on_host(tensor):
        refuse(copy, "it is on the host", "pass copy=None")
        tensor = asdlpack(tensor, device="cpu")         # the host waits for pinned memory
    else:
        tensor = asdlpack(tensor, device=device)        # an error if that is another GPU
        if stays(tensor, copy, readonly):
            return tensor
    if there.fills_granule(tensor, device) or (readonly and tensor.size):
        made: Tensor = there.shared_copy(tensor, device, readonly)
        return made
    return asdlpack(tensor, device=device, copy=copy)


def stays(tensor: Tensor, copy: bool | None, readonly: bool) -> bool:
    """Whether shared() gives a Tensor of the wanted device as it is. If not, ``copy=False`` is an error."""
    is_shared = prepared("segment").is_shared
    if not tensor.size or (copy is not True and is_shared(tensor, readonly)):
        return True
    if readonly and is_shared(tensor, False):
        refuse(copy, "others may write to the memory", "pass copy=None")
    refuse(copy, "other processes cannot map the memory", "pass copy=None, or write to dlbridge.shared_empty()")
    return False


def refuse(copy: bool | None, wrong: str, hint: str) -> None:
    if copy is False:
        raise refusal(CopyRequiredError, "shared", "copy", False, f"but {wrong}", hint)


def shared_empty(
    shape: SupportsIndex | Iterable[SupportsIndex], dtype: DType = "float64", *, device: Device = "cpu",
) -> Tensor:
    """New memory that other processes can map, of zeros: writable, compact, and aligned to 4096 bytes.

    Parameters
    ----------
    shape, dtype
        As for :func:`empty`.
    device : str, tuple or device object
        ``"cpu"``, or a GPU of CUDA, whose memory is of whole pages of mostly 2 MiB.

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
    made: Tensor
    if prepared("segment").names_cpu(device):
        made = prepared("segment").zeros(shape, dtype)
    else:
        made = prepared("device_segment").zeros_there(shape, dtype, device)
    return made


def prepared(name: str) -> Any:
    """A module of segments, once picklers were told of it."""
    module = load_module(f"dlbridge.processes.{name}")
    load_module("dlbridge.processes.sending").tell_picklers()
    return module
