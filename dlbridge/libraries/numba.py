"""Numba for CUDA: device arrays, through the CUDA array interface on both sides."""

from typing import Any

from dlbridge.libraries import numba_arrays
from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import COMPLEX, FLOATS, INTEGERS, LENGTH_1_STRIDES

SEEN = "seen in 0.30.4"         # of numba-cuda


def default_stream() -> int:
    """Which of the two default streams its stream 0 is, in the numbers of the array API standard."""
    from numba import config

    settings: Any = config
    return 2 if getattr(settings, "CUDA_PER_THREAD_DEFAULT_STREAM", 0) else 1


def corrected_interface(array: Any) -> Any:
    """The interface of an array as it is meant, in a new dictionary."""
    interface = numba_arrays.interface_of(array)
    if isinstance(interface, dict):
        stream = interface.get("stream")
        if stream is None:
            interface["stream"] = 1
        else:
            interface["stream"] = default_stream() if type(stream) is int and not stream else stream
            interface["keeper"] = getattr(array, "stream", None)
        if interface.get("strides") is None:
            interface["strides"] = getattr(array, "strides", None)      # numba.cuda.testing.ForeignArray has none
    return interface


LIBRARY = Library(
    name="numba",
    module="numba.cuda",
    versions="numba_cuda",
    install="'dlbridge[cuda12]'",
    arrays=(
        Arrays(
            "*",
            interface=Fact(
                corrected_interface, SEEN, "takes the address through four properties, gives no strides where rows "
                "repeat, no stream where kernels on the default one still write, and 0 for the default one, whichever "
                "that is by NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM, and keeps the object of a stream beside it"),
        ),
    ),
    private=Fact("libraries.numba_arrays", SEEN, "enters a context in its importer, and asks the driver for it",
                 since="0.30", below="0.31"),
    delivery="numba",
    array_types=("devicearray.DeviceNDArray",),
    devices=Fact(dict.fromkeys(("Device", "_DeviceContextManager"), lambda device: f"cuda:{device.id}"),
                 "seen in numba-cuda 0.30"),
    streams=Fact({"Stream": lambda stream: not stream.external}, SEEN, "does not keep an external stream alive"),
    lacks=(
        Fact("HOST", SEEN, "has the memory of GPUs only"),
        Fact("ZERO_STRIDES", SEEN, "takes them, and says of the array that it is compact"),
        LENGTH_1_STRIDES,
        Fact("SWAPPED_BYTES", SEEN, "has native byte order only"),
        Fact("READ_ONLY", SEEN, "has no read-only arrays on the device"),
        Fact("PINNED", SEEN, "has no device types"),
        Fact("UNIFIED", SEEN, "has no device types"),
    ),
    dtypes=(Fact(("bool", *INTEGERS, *FLOATS, *COMPLEX), SEEN),),
    uploads=("cuda",),
)
