"""tinygrad: lazy tensors without a protocol, on host memory.

What is relied on (in tinygrad 0.14.0)
    ``Tensor._buffer()`` and ``Buffer.as_memoryview(force_zero_copy=True)`` to read, ``Buffer`` over foreign memory and
    ``UOp.from_buffer`` to make. None of it is public, and a buffer does not keep foreign memory alive by itself.
How it is checked before use
    By the tests of tests/libraries alone: values, addresses and lifetime, both ways.
What happens without it
    ``Tensor.data()`` and ``Tensor(ndarray)`` would copy.
How to delete it
    Once tinygrad has ``__dlpack__``, this file needs the types and the limits only.
"""

import sys
from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import NO_LABELS, NO_SUBBYTE, PLAIN, compact

SEEN = "seen in 0.14.0"

# tinygrad's attribute of dtypes, by the name of each type that has memory.
DTYPES = {
    "bool": "bool", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "uint8": "uint8",
    "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "float16": "float16", "float32": "float32",
    "float64": "float64", "bfloat16": "bfloat16", "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2",
    "float8_e4m3fnuz": "fp8e4m3fnuz", "float8_e5m2fnuz": "fp8e5m2fnuz",
}
HOSTS = ("CPU", "PYTHON")


class Memory:
    """A realized tensor's memory as bytes; the buffer keeps it alive."""

    def __init__(self, tensor: Any) -> None:
        itemsize = tensor.dtype.itemsize
        self.buffer = tensor.realize()._buffer() if 0 not in tensor.shape else None
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": f"<u{itemsize}" if itemsize > 1 else "|u1",
            "data": bytearray() if self.buffer is None else self.buffer.as_memoryview(force_zero_copy=True),
        }


def read(tensor: Any) -> Any:
    """The memory of a tensor on the host; computing it first, where that is still to be done."""
    from dlbridge.errors import DeviceError, refusal

    device = tensor.device
    if device is not None and (not isinstance(device, str) or device.partition(":")[0] not in HOSTS):
        raise refusal(DeviceError, "tinygrad", "device", device, "is not the host", 'pass x.to("CPU")')
    return Memory(tensor)


def element_type(tensor: Any) -> str:
    """The name of a tensor's dtype."""
    types = sys.modules["tinygrad"].dtypes
    for name, attribute in DTYPES.items():
        if getattr(types, attribute, None) == tensor.dtype:
            return name
    return str(tensor.dtype)


def make(tinygrad: Any, array: Any, dtype: str) -> Any:
    """A tensor over an ndarray's memory, which its buffer keeps alive."""
    from tinygrad.device import Buffer, BufferSpec  # type: ignore[import-not-found, unused-ignore]
    from tinygrad.uop.ops import UOp  # type: ignore[import-not-found, unused-ignore]

    kind = getattr(tinygrad.dtypes, DTYPES[dtype])
    device = tinygrad.Device.DEFAULT if tinygrad.Device.DEFAULT in HOSTS else HOSTS[0]
    if not array.size:
        return tinygrad.Tensor.empty(*array.shape, dtype=kind, device=device)
    if device == "PYTHON":
        buffer = Buffer(device, array.size, kind, opaque=memoryview(array.reshape(-1).view("u1")))
    else:
        spec = BufferSpec(external_ptr=array.ctypes.data)
        buffer = Buffer(device, array.size, kind, options=spec, preallocate=True)
    buffer.owner = array
    return tinygrad.Tensor(UOp.from_buffer(buffer)).reshape(array.shape)


LIBRARY = Library(
    name="tinygrad",
    arrays=(
        Arrays(
            "Tensor",
            {"element type": "pass x.float()"},
            gives=Fact(read, SEEN, "has no protocol"),
            element_type=Fact(element_type, SEEN, "is read as bytes"),
        ),
    ),
    delivery="importer:prepare_for_ndarrays",
    importer=make,
    array_types=("Tensor",),
    lacks=(
        *compact(SEEN, "has no strides in its buffers"),
        *PLAIN,
        Fact("READ_ONLY", SEEN, "writes into it"),
        Fact("OTHER_DEVICES", SEEN, "is given the host's memory alone"),
        *NO_LABELS,
        *NO_SUBBYTE,
    ),
    alignment=Fact(64, SEEN, "ends the process in kernels over float32 that is not aligned to 16 bytes"),
    dtypes=(Fact(tuple(DTYPES), SEEN),),
)
