"""The buffer protocol: a C exporter whose every field may be wrong, taken directly and through what wraps it."""

import struct

from support.hostile_buffer import Exporter, fill_slots

import dlbridge
from fuzz.harness import (
    ACTIONS,
    BLOCKS,
    COPIES,
    LARGEST_COPY,
    MEMORY,
    Described,
    Extents,
    check,
    check_elements,
    compact,
    every_face,
    explained,
    hand_over,
    packed,
    set_choice,
    set_number,
    take,
    wrapped,
)

PY_BUFFER = struct.Struct("=QQqqiiQQQQQ")

# Letters, the sizes that they may have, and the name of the type.
LETTERS = {
    b"?": {1: "bool"}, b"c": {1: "uint8"}, b"B": {1: "uint8"}, b"b": {1: "int8"},
    b"h": {2: "int16"}, b"i": {4: "int32"}, b"l": {4: "int32", 8: "int64"}, b"q": {8: "int64"}, b"n": {8: "int64"},
    b"H": {2: "uint16"}, b"I": {4: "uint32"}, b"L": {4: "uint32", 8: "uint64"}, b"Q": {8: "uint64"},
    b"N": {8: "uint64"}, b"P": {8: "uint64"}, b"e": {2: "float16"}, b"f": {4: "float32"}, b"d": {8: "float64"},
    b"Ze": {4: "complex32"}, b"Zf": {8: "complex64"}, b"Zd": {16: "complex128"},
}
PREFIXES = (b"", b"<", b">", b"=", b"@", b"!")
ODD_FORMATS = (
    b"", b"O", b"g", b"Zg", b"Z", b"ff", b"2h", b"T{f:x:}", b"4s", b"3w", b"\xff", b"x", b" f", b"f ", b"<", b"><f",
    b"ZZf", b"&f", b"(2,3)f", b"\x80", b"Zq",
)
SOUND = tuple((letter, size) for letter, sizes in LETTERS.items() for size in sizes)
SHAPES = ((2, 3), (4,), (), (0, 3), (2, 2, 2), (1,), (64,))


class Fields:
    """A Py_buffer in Python's numbers."""

    def __init__(self, source):
        self.letter, self.itemsize = source.choice(SOUND)
        self.prefix = b""
        shape = source.choice(SHAPES)
        self.buf, self.readonly, self.ndim = MEMORY.address + 64, 0, len(shape)
        self.shape = Extents(shape, 1)
        self.strides = Extents([step * self.itemsize for step in compact(shape)], 1)
        self.suboffsets = Extents((), -1)
        self.has_format = self.has_shape = self.has_strides = self.has_owner = True
        self.has_suboffsets = False
        self.len = None
        while source.more():
            source.choice(CHANGES)(self, source)
        if self.len is None:
            self.len = self.nbytes()

    def nbytes(self):
        """What an honest exporter would say."""
        nbytes = self.itemsize
        for extent in self.shape.of(self.ndim):
            nbytes *= extent
        return wrapped(nbytes, 64)

    def content(self):
        extents = [
            BLOCKS.new(packed(given.of(self.ndim))) if has else 0 for given, has in (
                (self.shape, self.has_shape), (self.strides, self.has_strides), (self.suboffsets, self.has_suboffsets))]
        text = BLOCKS.new(self.prefix + self.letter + b"\0") if self.has_format else 0
        return PY_BUFFER.pack(
            self.buf, 0, self.len, self.itemsize, self.readonly, self.ndim, text, *extents, 0)

    def name(self):
        if not self.has_format:
            return "uint8" if self.itemsize == 1 else None
        text = self.prefix + self.letter        # which may begin with a prefix too
        return LETTERS.get(text[text[:1] in PREFIXES[1:]:], {}).get(self.itemsize)

    def is_swapped(self):
        return self.has_format and self.itemsize > 1 and (self.prefix + self.letter)[:1] in (b">", b"!")

    def described(self):
        if self.name() is None or not 0 <= self.ndim <= 64 or (self.ndim and not self.has_shape):
            return Described(None, None, None, 1)
        if self.has_suboffsets and any(suboffset >= 0 for suboffset in self.suboffsets.of(self.ndim)):
            return Described(None, None, None, 1)
        shape = self.shape.of(self.ndim)
        strides = self.strides.of(self.ndim) if self.has_strides else [step * self.itemsize for step in compact(shape)]
        made = Described(self.buf, shape, strides, self.itemsize, self.name(), bool(self.readonly))
        if made.span is not None and made.nbytes() != self.len:
            made.span = None
        return made


def set_kind(fields, source):
    fields.letter, fields.itemsize = source.choice(SOUND)


def set_axis(name):
    def change(fields, source):
        getattr(fields, name).set(source.byte(), source.number())
    return change


def set_suboffset(fields, source):
    fields.has_suboffsets = True
    fields.suboffsets.set(source.byte(), source.number())


CHANGES = (
    set_axis("shape"), set_axis("strides"), set_number("ndim", 32), set_kind, set_choice("prefix", PREFIXES),
    lambda fields, source: setattr(fields, "buf", (MEMORY.address + source.number()) & 0xFFFFFFFFFFFFFFFF),
    lambda fields, source: setattr(fields, "buf", source.number() & 0xFFFFFFFFFFFFFFFF),
    set_number("len"), set_number("itemsize"), set_number("readonly", 32), set_suboffset,
    set_choice("letter", ODD_FORMATS), lambda fields, source: setattr(
        fields, "letter", source.take(source.byte() % 4).replace(b"\0", b"")),
    set_choice("has_shape", (False, True)), set_choice("has_strides", (False, True)),
    set_choice("has_format", (False, True)), set_choice("has_owner", (False, True)),
    set_choice("has_suboffsets", (True, False)),
)


class Plain(Exporter):
    """Offers the buffer protocol alone."""


class Interface(Exporter):
    """Offers an array interface whose memory is its own buffer."""

    __array_interface__ = {"shape": (2, 3), "typestr": "<f4", "version": 3}     # noqa: RUF012


for _kind in (Plain, Interface):
    fill_slots(_kind)


def run(source):
    mode = source.byte()
    action, copy, wraps = ACTIONS[mode % 8], COPIES[mode // 8 % 3], mode // 24 % 8
    fields = Fields(source)
    described = fields.described()
    if not described.may_copy() or wraps == 7:
        copy = False
    exporter = Interface() if wraps == 7 else Plain()
    exporter.owned, exporter.view = fields.has_owner, fields.content()
    made, taken = hand_over(exporter, action, copy)
    if wraps != 7:
        check_made(fields, described, action, copy, made, taken)
    del made
    check(exporter.exported == exporter.released, "releases", exporter.exported, exporter.released)
    BLOCKS.free()
    MEMORY.check()


def check_made(fields, described, action, copy, made, taken):
    if taken and action is not explained:
        check(described.span is not None, "accepted", fields.__dict__)
    swapped = fields.is_swapped()
    odd = described.shape is not None and any(stride % fields.itemsize for stride in described.strides)
    if described.is_real() and action in (take, every_face) and described.nbytes() <= LARGEST_COPY:
        check(taken or (copy is False and (swapped or odd)), "refused", fields.__dict__)
    if type(made) is dlbridge.Tensor:
        if copy is False or not (copy or swapped or odd):
            described.check_tensor(made)
        if described.may_copy() and not swapped:
            check_elements(made, described, fields.__dict__)
