"""What the fuzz targets share: bytes read as numbers and objects, memory whose ends are known, and what must hold.

A target is a function of bytes. It describes something sound, changes what the bytes say, hands it to dlbridge, and
raises `Violation` where a promise is broken; crashes are for a sanitizer to see. Nothing here depends on chance or on
an earlier execution, so that a case can be replayed.
"""

import ctypes
import math
import struct

import numpy as np

import dlbridge
from dlbridge.testing.producers import new_capsule

LARGEST_SPAN = 2**62
LARGEST_COPY = 1 << 12      # a description may stand for terabytes by a stride of 0: larger ones are never copied

# What a number is likely to go wrong at.
EDGES = tuple(sorted({sign * (1 << bits) + off for bits in (7, 8, 15, 16, 31, 32, 53, 60, 61, 62, 63, 64)
                      for sign in (1, -1) for off in (-1, 0, 1)} - set(range(-8, 200))))[:55]


class Violation(AssertionError):
    """A promise that was broken."""


class ProducersError(Exception):
    """What a hostile object raises by itself; it must arrive as it is."""


class Absent(ProducersError, AttributeError):
    """What a hostile object says of an attribute that it does not have."""


class Input:
    """Bytes, read as what a target needs; they end in zeros."""

    __slots__ = ("at", "data")

    def __init__(self, data):
        self.data = data
        self.at = 0

    def more(self):
        return self.at < len(self.data)

    def byte(self):
        at = self.at
        self.at = at + 1
        return self.data[at] if at < len(self.data) else 0

    def take(self, count):
        at = self.at
        self.at = at + count
        return self.data[at:at + count].ljust(count, b"\0")

    def choice(self, table):
        return table[self.byte() % len(table)]

    def number(self):
        """A small integer in one byte, one of `EDGES`, or any of 64 bits."""
        first = self.byte()
        if first < 200:
            return first if first < 180 else first - 200
        if first == 255:
            return int.from_bytes(self.take(8), "little", signed=True)
        return EDGES[first - 200]


# ---- memory ----------------------------------------------------------------------------------------------------------

class Memory:
    """Bytes that a producer really has."""

    SIZE = 4096

    def __init__(self):
        self.bytes = bytearray((at * 37 + at // 251) & 0xFF for at in range(self.SIZE))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))
        self.sound = bytes(self.bytes)

    def holds(self, low, high):
        return self.address <= low <= high <= self.address + self.SIZE

    def check(self):
        if self.bytes != self.sound:
            raise Violation("the producer's memory was written to")


MEMORY = Memory()

# Of C itself, which a sanitizer watches: reads beyond the end of a block, and of a freed one, are seen.
_library = ctypes.PyDLL(None)
_malloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("malloc", _library))
_memmove = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)(("memmove", _library))
_free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("free", _library))


class Blocks:
    """The structs and arrays of one producer, each in a block of just its size."""

    def __init__(self):
        self.addresses = []

    def new(self, content):
        address = _malloc(len(content) or 1)
        _memmove(address, content, len(content))
        self.addresses.append(address)
        return address

    def free(self):
        for address in self.addresses:
            _free(address)
        self.addresses.clear()


BLOCKS = Blocks()


def packed(values):
    """Values as C has an array of int64; beyond 64 bits they wrap around."""
    return struct.pack(f"{len(values)}Q", *[value & 0xFFFFFFFFFFFFFFFF for value in values])


def wrapped(value, bits):
    """What an int of C makes of a number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def set_number(name, bits=64, signed=True):
    """A change of a description: a field becomes any number of so many bits."""
    def change(fields, source):
        value = source.number()
        setattr(fields, name, wrapped(value, bits) if signed else value & ((1 << bits) - 1))
    return change


def set_choice(name, table):
    """A change of a description: a field becomes an entry of a table."""
    def change(fields, source):
        setattr(fields, name, source.choice(table))
    return change


class Extents:
    """Shape or strides as a producer has them: as many as ndim says, and never more than 64."""

    def __init__(self, values, fill):
        self.values = list(values)
        self.fill = fill

    def set(self, axis, value):
        axis %= 64
        self.values += [self.fill] * (axis + 1 - len(self.values))
        self.values[axis] = wrapped(value, 64)

    def of(self, ndim):
        count = ndim if 0 <= ndim <= 64 else 64
        return (self.values + [self.fill] * (count - len(self.values)))[:count]


def compact(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return strides[::-1]


def touched(shape, strides, item_bytes):
    """The bytes from the first element on, (low, high), with strides in bytes; None of a layout that cannot be."""
    if any(extent < 0 for extent in shape):
        return None
    count = math.prod(shape)
    if math.prod(extent or 1 for extent in shape) * item_bytes >= 2**63:
        return None
    if not count:
        return 0, 0
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low, high = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + item_bytes
    return None if low < -LARGEST_SPAN or high > LARGEST_SPAN else (low, high)


def in_order(room, start, shape, strides, item_bytes):
    """The bytes of all elements in C order, as words without a meaning, by NumPy; strides in bytes."""
    if 0 in shape:
        return b""
    # NumPy takes no bool for an integer, and not every one of many axes.
    axes = [(int(extent), int(stride)) for extent, stride in zip(shape, strides, strict=True) if extent > 1]
    words = np.ndarray([extent for extent, _ in axes], f"V{item_bytes}", room, start, [stride for _, stride in axes])
    return words.tobytes()


def elements_of(tensor):
    """What a Tensor holds, by the copy that a pickle of it has."""
    elements, shape, strides, _, _, _, offset_bytes = tensor.__reduce__()[1]
    return in_order(elements, offset_bytes, shape, [stride * tensor.itemsize for stride in strides], tensor.itemsize)


# ---- what must hold --------------------------------------------------------------------------------------------------

def check(holds, *facts):
    if not holds:
        raise Violation(*facts)


def check_elements(tensor, described, *facts):
    """The elements arrived; of bools, whether they are true, since a copy has only the bytes 0 and 1."""
    found, expected = elements_of(tensor), described.elements()
    if tensor.dtype == "bool":
        found, expected = (bytes(map(bool, elements)) for elements in (found, expected))
    check(found == expected, "elements", *facts)


class Described:
    """What a producer says of its memory, in Python's numbers; what dlbridge makes of it is held against this."""

    __slots__ = ("address", "dtype", "item_bytes", "readonly", "shape", "span", "strides")

    def __init__(self, address, shape, strides, item_bytes, dtype=None, readonly=None):
        self.address = address          # of the first element, or None where it is no address
        self.shape = shape              # or None where there is none to be read
        self.strides = strides          # in bytes
        self.item_bytes = item_bytes
        self.dtype = dtype
        self.readonly = readonly
        self.span = None if shape is None else touched(shape, strides, item_bytes)

    def is_real(self):
        """Whether all of it lies in memory that there is, so that it may be read."""
        return self.span is not None and self.address is not None and MEMORY.holds(
            self.address + self.span[0], self.address + self.span[1])

    def nbytes(self):
        return math.prod(self.shape) * self.item_bytes

    def may_copy(self):
        return self.is_real() and self.nbytes() <= LARGEST_COPY

    def check_tensor(self, tensor):
        """An accepted description is one that can be, and arrived as it was."""
        check(self.span is not None, "accepted", self.shape, self.strides)
        check(tensor.shape == tuple(self.shape), tensor.shape, self.shape)
        if self.dtype is not None:
            check(tensor.dtype == self.dtype, tensor.dtype, self.dtype)
        if 0 in self.shape:
            return              # no memory, and so no word about it need be kept
        if self.readonly is not None:
            check(tensor.readonly == self.readonly, "readonly", tensor.readonly)
        if self.address is not None:
            check(tensor.data_ptr == self.address & 0xFFFFFFFFFFFFFFFF, tensor.data_ptr, self.address)
            check(self.address, "no address for elements")
        if tensor.itemsize:
            for extent, stride, given in zip(self.shape, self.strides, tensor.strides, strict=True):
                check(extent == 1 or given * tensor.itemsize == stride, tensor.strides, self.strides)

    def elements(self):
        """By NumPy, of memory that is real: the bytes of all elements in C order, as words without a meaning."""
        start = self.address - MEMORY.address + self.span[0]
        room = MEMORY.sound[start:start + self.span[1] - self.span[0]]
        return in_order(room, -self.span[0], self.shape, self.strides, self.item_bytes)


# ---- what is done with a source --------------------------------------------------------------------------------------

def take(source, copy):
    return dlbridge.asdlpack(source, copy=copy)


def to_numpy(source, copy):
    return dlbridge.convert(source, "numpy", copy=copy)


def to_memoryview(source, copy):
    return dlbridge.convert(source, "memoryview", copy=copy)


def to_legacy(source, copy):
    return dlbridge.convert(source, "dlpack", copy=copy, readonly="share" if copy is False else "copy")


def to_versioned(source, copy):
    # Without a copy= of its own: only of what may be copied.
    return take(source, False) if copy is False else dlbridge.to_dlpack(source, max_version=(1, 3))


def on_cpu(source, copy):
    return dlbridge.from_dlpack(source, device="cpu", copy=copy)


def explained(source, copy):
    return str(dlbridge.explain(source, "numpy", copy=copy))


def every_face(source, copy):
    """A Tensor, asked for all that it can say; nothing of it is read unless it may be copied."""
    tensor = dlbridge.asdlpack(source, copy=copy)
    for face in FACES:
        try:
            face(tensor, copy is not False)
        except (dlbridge.DLBridgeError, AttributeError):
            continue
    return tensor


FACES = (
    lambda tensor, _: (repr(tensor), tensor.size, tensor.nbytes, tensor.owner, tensor.byte_offset, tensor.protocol),
    lambda tensor, _: tensor.__dlpack_device__(),
    lambda tensor, _: tensor.__dlpack__(max_version=(1, 3)),
    lambda tensor, _: tensor.__dlpack__(copy=False),
    lambda tensor, _: tensor.__array_struct__,
    lambda tensor, _: tensor.__array_interface__,
    lambda tensor, _: tensor.__cuda_array_interface__,
    lambda tensor, _: memoryview(tensor),
    lambda tensor, readable: tensor.__dlpack__(max_version=(1, 0), copy=True) if readable else None,
    lambda tensor, readable: tensor.__reduce__() if readable else None,
)

ACTIONS = (take, to_numpy, to_memoryview, to_legacy, to_versioned, on_cpu, explained, every_face)
COPIES = (None, False, True)


def hand_over(source, action, copy, allowed=dlbridge.DLBridgeError):
    """Let dlbridge have a source; gives what it made, or None, and whether it took the source."""
    try:
        return action(source, copy), True
    except allowed:
        return None, False
    except ValueError as error:
        # NumPy's own, of an array whose truth was asked.
        check(str(error).startswith("The truth value of an array"), repr(error))
        return None, False


# ---- a producer whose deleter counts ---------------------------------------------------------------------------------

class Account:
    """How often the deleter of the one struct that is about was called, and with what."""

    def __init__(self):
        self.deleted = 0
        self.wrongly = 0
        self.address = 0

    def open(self, content):
        """A struct, which its deleter frees with all it points to."""
        self.deleted = 0
        self.address = BLOCKS.new(content)
        return self.address

    def close(self, address):
        self.deleted += 1
        self.wrongly += address != self.address
        BLOCKS.free()

    def settle(self, expected):
        """After all that was made is gone."""
        BLOCKS.free()
        check(self.deleted == expected and not self.wrongly, "calls of the deleter", self.deleted, expected)


ACCOUNT = Account()
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
count_deleter = Deleter(ACCOUNT.close)
DELETER = ctypes.cast(count_deleter, ctypes.c_void_p).value
capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def make_capsule(address, name):
    return new_capsule(address, name, None)
