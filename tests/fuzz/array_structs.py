"""``__array_struct__``: NumPy's C structure, of which any field may be wrong."""

import ctypes
import struct

import dlbridge
from dlbridge.testing.producers import new_capsule
from fuzz.harness import (
    ACTIONS,
    BLOCKS,
    COPIES,
    LARGEST_COPY,
    MEMORY,
    Absent,
    Described,
    Extents,
    ProducersError,
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
)
from fuzz.objects import fail, thing

STRUCT = struct.Struct("=iiB3xii4xQQQQ")
KINDS = {
    (ord(kind), size): f"{name}{8 * size}" for kind, name, sizes in (
        ("i", "int", (1, 2, 4, 8)), ("u", "uint", (1, 2, 4, 8)), ("f", "float", (2, 4, 8)),
        ("c", "complex", (4, 8, 16)))
    for size in sizes} | {(ord("b"), 1): "bool"}
SOUND = tuple(KINDS)
SHAPES = ((2, 3), (), (4,), (0, 3), (2, 2, 2), (1,))
WRITEABLE, NATIVE = 0x400, 0x200
Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
free_blocks = Destructor(lambda _: BLOCKS.free())
DESTRUCTOR = ctypes.cast(free_blocks, ctypes.c_void_p)


class Fields:
    """A PyArrayInterface in Python's numbers."""

    def __init__(self, source):
        self.kind, self.itemsize = source.choice(SOUND)
        shape = source.choice(SHAPES)
        self.two, self.nd, self.flags, self.data = 2, len(shape), WRITEABLE | NATIVE | 1, MEMORY.address + 64
        self.shape = Extents(shape, 1)
        self.strides = Extents([step * self.itemsize for step in compact(shape)], 1)
        self.has_shape = self.has_strides = True
        self.descr = 0
        self.name = None
        while source.more():
            source.choice(CHANGES)(self, source)

    def content(self):
        return STRUCT.pack(
            self.two, self.nd, self.kind, self.itemsize, self.flags,
            BLOCKS.new(packed(self.shape.of(self.nd))) if self.has_shape else 0,
            BLOCKS.new(packed(self.strides.of(self.nd))) if self.has_strides else 0, self.data, self.descr)

    def described(self):
        sound = (self.kind, self.itemsize) in KINDS and 0 <= self.nd <= 64 and self.two == 2 and self.name is None
        if not sound or (self.nd and not self.has_shape):
            return Described(None, None, None, 1)
        shape = self.shape.of(self.nd)
        strides = self.strides.of(self.nd) if self.has_strides else [step * self.itemsize for step in compact(shape)]
        return Described(
            self.data, shape, strides, self.itemsize, KINDS[self.kind, self.itemsize], not self.flags & WRITEABLE)


def set_kind(fields, source):
    fields.kind, fields.itemsize = source.choice(SOUND)


def set_address(name):
    def change(fields, source):
        setattr(fields, name, (MEMORY.address + source.number()) & 0xFFFFFFFFFFFFFFFF)
    return change


def set_pointer(name):
    def change(fields, source):
        setattr(fields, name, source.number() & 0xFFFFFFFFFFFFFFFF)
    return change


CHANGES = (
    lambda fields, source: fields.shape.set(source.byte(), source.number()),
    lambda fields, source: fields.strides.set(source.byte(), source.number()),
    set_number("nd", 32), set_kind, set_address("data"), set_pointer("data"), set_number("flags", 32),
    set_number("itemsize", 32), lambda fields, source: setattr(fields, "kind", source.byte()), set_number("two", 32),
    set_pointer("descr"), set_choice("has_shape", (False, True)), set_choice("has_strides", (False, True)),
    set_choice("name", (None, b"", b"dltensor")), set_choice("flags", (WRITEABLE, WRITEABLE | NATIVE, NATIVE, 0, -1)),
)


class Holder:
    def __init__(self, answer):
        self.answer = answer

    @property
    def __array_struct__(self):
        return self.answer


class Refusing(Holder):
    __array_struct__ = property(fail)


class Instance(Holder):
    def __getattribute__(self, name):
        if name != "__array_struct__":
            raise Absent(name)
        return object.__getattribute__(self, "answer")


def holder_of(capsule, form, source):
    if form < 12:
        return Holder(capsule)
    if form < 13:
        return Refusing(capsule)
    return Holder(thing(source)) if form < 14 else Instance(capsule)


def run(source):
    mode, form = source.byte(), source.byte() % 16
    action, copy = ACTIONS[mode % 8], COPIES[mode // 8 % 3]
    fields = Fields(source)
    described = fields.described()
    if not described.may_copy():
        copy = False
    holder = holder_of(new_capsule(BLOCKS.new(fields.content()), fields.name, DESTRUCTOR), form, source)
    made, taken = hand_over(holder, action, copy, (dlbridge.DLBridgeError, ProducersError))
    if form < 12:
        check_made(fields, described, action, copy, made, taken)
    del made, holder
    check(not BLOCKS.addresses, "the capsule is still held")
    MEMORY.check()


def check_made(fields, described, action, copy, made, taken):
    if taken and action is not explained:
        check(described.span is not None, "accepted", fields.__dict__)
    swapped = not fields.flags & NATIVE and fields.itemsize > 1
    odd = described.shape is not None and any(stride % fields.itemsize for stride in described.strides)
    if described.is_real() and action in (take, every_face) and described.nbytes() <= LARGEST_COPY:
        check(taken or (copy is False and (swapped or odd)), "refused", fields.__dict__)
    if type(made) is dlbridge.Tensor:
        if copy is False or not (copy or swapped or odd):
            described.check_tensor(made)
        if described.may_copy() and not swapped:
            check_elements(made, described, fields.__dict__)
