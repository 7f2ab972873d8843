"""Real memory of any layout, through every kernel that copies, element by element beside NumPy's."""

import math

import numpy as np
from dlbridge._core.copying import _set_split

import dlbridge
from dlbridge.testing.producers import ArrayInterface, OldProducer, Producer
from fuzz.harness import check

SIZE = 1 << 15
BYTES = bytearray((at * 37 + at // 251) & 0xFF for at in range(SIZE))
ROOM = np.frombuffer(BYTES, np.uint8)
SOUND = bytes(BYTES)
DTYPES = tuple(np.dtype(name) for name in (
    "<f4", "|u1", "<i2", "<f8", "<c16", "|b1", ">f4", ">u2", ">i8", ">c8", ">c16", "<c8", "<u4", "|i1", ">f8", "<f2"))
EXTENTS = (
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 1023, 1024, 1025, 4096, 0)
LARGEST = 1 << 13           # bytes of the elements: more says no more
SUBBYTE = ((1, 4, "uint4"), (0, 4, "int4"), (1, 2, "uint2"), (0, 2, "int2"), (17, 4, "float4_e2m1fn"),
           (15, 6, "float6_e2m3fn"), (16, 6, "float6_e3m2fn"), (1, 1, "uint1"))


def strided(source):
    """An ndarray over the room: any extents, any strides that stay within."""
    dtype = source.choice(DTYPES)
    shape = []
    for _ in range(source.byte() % 6):
        extent = source.choice(EXTENTS)
        shape.append(extent if math.prod(shape) * extent * dtype.itemsize <= LARGEST else 1)
    order = sorted(range(len(shape)), key=lambda axis: source.byte())
    steps, step = [0] * len(shape), dtype.itemsize
    for axis in order:
        gap = source.byte()
        steps[axis] = step
        if gap & 1:
            steps[axis] = -step
        if gap & 2:
            step += (gap >> 4) * (1 if gap & 8 else dtype.itemsize)
            steps[axis] = -step if gap & 1 else step
        if gap & 4 and gap & 64:
            steps[axis] = 0
        else:
            step *= max(shape[axis], 1)
    low = sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True) if step < 0 < extent)
    high = sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True) if step > 0 and extent)
    if high - low + dtype.itemsize > SIZE:
        return None
    start = -low + source.byte() % (SIZE - (high - low) - dtype.itemsize + 1)
    return np.ndarray(shape, dtype, ROOM, start, steps)


class Buffer:
    """Makes a memoryview of what it is given, where NumPy does."""

    def __new__(cls, array):
        return memoryview(array)


SOURCES = (lambda array: array, Buffer, lambda array: ArrayInterface(array))
TARGETS = (
    lambda thing, copy: dlbridge.convert(thing, "numpy", copy=copy),
    lambda thing, copy: np.asarray(dlbridge.convert(thing, "memoryview", copy=copy)),
    lambda thing, copy: dlbridge.convert(dlbridge.asdlpack(thing, copy=copy), "numpy"),
    lambda thing, copy: dlbridge.convert(dlbridge.to_dlpack(thing, max_version=(1, 0)), "numpy", copy=copy),
    lambda thing, copy: dlbridge.convert(dlbridge.convert(thing, "dlpack", copy=copy, readonly="share"), "numpy"),
)


def run(source):
    mode = source.byte()
    if mode >= 224:
        return run_below_a_byte(source)
    split = mode // 30 == 5
    if split:
        _set_split(1 << 10, 1 << 9)
    try:
        array = strided(source)
        if array is None:
            return
        array.flags.writeable = mode % 2
        made = SOURCES[mode // 2 % 3](array)
        result = TARGETS[mode // 6 % 5](made, True if source.byte() % 4 else None)
    finally:
        if split:
            _set_split(1 << 26, 1 << 24)
    check(result.shape == array.shape, result.shape, array.shape)
    if array.dtype == bool:         # a copy has only the bytes 0 and 1
        found, expected = result.view("u1") != 0, array.view("u1") != 0
    else:
        expected = array.astype(array.dtype.newbyteorder("="), copy=False)
        found = result.astype(expected.dtype, copy=False)
    check(found.tobytes() == expected.tobytes(), "elements", array.dtype, array.shape, array.strides)
    del result, made
    check(BYTES == SOUND, "the producer's memory was written to")


def run_below_a_byte(source):
    """Packed elements, out of a capsule into bytes of their own and back, beside NumPy's own bits."""
    code, bits, _ = source.choice(SUBBYTE)
    count = source.byte() * (1 + source.byte() % 5)
    start = source.byte()
    kind = (Producer, OldProducer)[source.byte() & 1]
    memory = ROOM[start:start + (count * bits + 7) // 8]
    producer = kind(memory, code=code, bits=bits, ndim=1, shape=(count,), strides=(1,))
    unpacked = dlbridge.convert(producer, "numpy")
    every = np.unpackbits(memory, bitorder="little")[:count * bits]
    values = unpacked.view(np.uint8)
    check(values.shape == (count,), values.shape)
    low = np.unpackbits(values.reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    check(low.tobytes() == every.tobytes(), "unpacked", code, bits, count)
    back = dlbridge.asdlpack(unpacked).__dlpack__()         # a legacy capsule has no word for padding: packs
    packed = dlbridge.asdlpack(back).__reduce__()[1][0]
    given = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")[:count * bits]
    check(given.tobytes() == every.tobytes(), "packed", code, bits, count)
    del unpacked, values, back
    producer.forget()
    check(producer.deleted == producer.exported, "deleters", producer.deleted)
