"""Python objects out of bytes: those that a description consists of, and those that no honest one has."""

import ctypes

import numpy as np

from fuzz.harness import MEMORY, ProducersError

TYPESTRS = (
    "<f4", "<f8", "|u1", "|b1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f2", "<c8", "<c16", "<c4", ">f4", ">i8",
    ">c16", "=f4", "|i1", "<V2", "|V4", "<U4", "|S8", "|O8", "<M8[ns]", "<f16", "|t1", "<f", "<f-4", "f4", "",
    "<f99999999999", ">c8", ">u2", "<b1", "|f4", "<f4 ", "\0f4", "<\N{BENGALI DIGIT FOUR}4", "<i16",
)
WORDS = (
    "cpu", "cuda", "cuda:0", "cuda:1", "cpu:0", "cuda_host", "rocm", "mps", "gpu", "cuda:-1", "cuda:99999999999",
    "cuda:\u0664", "", ":", "copy", "share", "error", "numpy", "torch", "dlpack", "dlbridge", "memoryview", "jax",
    "cupy", "0x1000", "-8", "0x" + "F" * 40, "0x" + "1" * 5000, "\udc80", "x" * 300, "{shape}", "%s",
)
HUGE = (10**30, -(10**30), 10**5000, -(10**5000), 1 << 64, (1 << 64) - 1)


def fail(*_):
    raise ProducersError("a hostile object")


class Number(int):
    """An integer that compares as it likes."""

    __slots__ = ()
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = lambda self, other: True
    __hash__ = int.__hash__


class Contrary(int):
    __slots__ = ()
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = lambda self, other: False
    __hash__ = int.__hash__
    __bool__ = __index__ = __int__ = __repr__ = __str__ = __format__ = fail


class Text(str):
    __slots__ = ()
    __getitem__ = __eq__ = __hash__ = __str__ = __repr__ = __format__ = __len__ = fail


class Changing(str):
    """Another text each time it is asked."""

    def __str__(self):
        return "<f8"

    def __getitem__(self, _):
        return ["unhashable"]

    def __hash__(self):
        return hash("<f8")

    def __eq__(self, other):
        return True


class Growing(tuple):
    """A tuple that says it is longer than it is."""

    __slots__ = ()

    def __len__(self):
        return tuple.__len__(self) + 100

    def __iter__(self):
        return iter([1] * (tuple.__len__(self) + 70))

    def __getitem__(self, _):
        return fail()


class Failing:
    """Whatever it is asked."""

    __bool__ = __index__ = __int__ = __len__ = __iter__ = __getitem__ = __repr__ = __str__ = __eq__ = __call__ = fail
    __hash__ = __getattr__ = __buffer__ = __float__ = __instancecheck__ = fail


class Record:
    """An object with a few attributes, as those of devices and streams."""

    NAMES = ("type", "index", "platform", "id", "cuda_stream", "ptr", "handle", "value", "external", "device_type")

    def __repr__(self):
        return "Record()"


class CudaStream:
    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


class Emptied:
    """Empties a dictionary when its truth is asked."""

    def __init__(self, victim):
        self.victim = victim

    def __bool__(self):
        self.victim.clear()
        return False


class Entries(dict):
    """A dictionary whose own methods lie about what it holds."""

    def get(self, *_):
        fail()

    __getitem__ = __iter__ = __len__ = keys = items = fail


BUFFERS = (
    lambda: bytearray(24), lambda: b"abcdefgh", lambda: b"", lambda: memoryview(bytearray(96))[::2],
    lambda: memoryview(bytearray(24)).cast("f", (2, 3)), lambda: np.zeros((2, 3), np.float32),
    lambda: np.zeros((2, 3), ">f4"), lambda: np.zeros((3, 2), np.float32).T, lambda: (ctypes.c_double * 3)(),
    lambda: np.zeros(2, "M8[s]"), lambda: MEMORY.bytes, lambda: bytearray(4096), lambda: np.zeros((), "f8"),
)


def record(source, depth):
    made = Record()
    for _ in range(source.byte() % 4):
        setattr(made, source.choice(Record.NAMES), thing(source, depth + 1))
    return made


def numbers(source):
    return tuple([source.number() for _ in range(source.byte() % 6)])


def many(source):
    return (source.number(),) * (source.byte() + 30)


def things(source, depth):
    return tuple([thing(source, depth + 1) for _ in range(source.byte() % 5)])


KINDS = (
    lambda source, _: source.number(),
    lambda source, _: numbers(source),
    lambda source, _: (MEMORY.address + source.number(), bool(source.byte() & 1)),
    lambda source, _: source.choice(TYPESTRS),
    lambda source, _: None,
    lambda source, _: bool(source.byte() & 1),
    things,
    lambda source, _: MEMORY.address + source.number(),
    lambda source, _: source.choice(BUFFERS)(),
    lambda source, _: source.choice(WORDS),
    lambda source, _: source.choice(HUGE),
    lambda source, _: many(source),
    lambda source, _: source.take(source.byte() % 8).decode("latin-1"),
    lambda source, _: source.take(source.byte() % 8),
    lambda source, _: list(numbers(source)),
    lambda source, _: source.number() / 4,
    lambda source, _: source.choice((float("nan"), float("inf"), 1j, object(), type, ..., NotImplemented, {}, set())),
    lambda source, _: source.choice((Number, Contrary))(source.number()),
    lambda source, _: source.choice((Text, Changing))(source.choice(TYPESTRS)),
    lambda source, _: Growing(numbers(source)),
    lambda source, _: Failing(),
    record,
    lambda source, depth: CudaStream(thing(source, depth + 1)),
    lambda source, _: source.choice((np.int64, np.float32, np.bool_, np.uint8))(1),
    lambda source, _: (hex(source.number()), False),
    lambda source, _: (source.choice(WORDS), False),
    lambda source, _: (source.number(), Failing()),
)


def thing(source, depth=0):
    kind = source.byte()
    return source.number() if depth > 4 else KINDS[kind % len(KINDS)](source, depth)
