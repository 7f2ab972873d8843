"""Arrow's C interfaces: arrays of the host and of devices, and streams, of which any field may be wrong."""

import ctypes
import math
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
    ProducersError,
    check,
    check_elements,
    every_face,
    explained,
    hand_over,
    packed,
    set_choice,
    set_number,
    take,
    wrapped,
)
from fuzz.objects import fail, thing

SCHEMA = struct.Struct("=QQQqqQQQQ")
ARRAY = struct.Struct("=qqqqqQQQQQ")
DEVICE = struct.Struct("=qi4xQqqq")
STREAM = struct.Struct("=QQQQQ")
LETTERS = {
    b"c": ("int8", 1), b"s": ("int16", 2), b"i": ("int32", 4), b"l": ("int64", 8), b"C": ("uint8", 1),
    b"S": ("uint16", 2), b"I": ("uint32", 4), b"L": ("uint64", 8), b"e": ("float16", 2), b"f": ("float32", 4),
    b"g": ("float64", 8),
}
FORMATS = (
    *LETTERS, b"b", b"", b"ff", b"n", b"u", b"tdD", b"tss:", b"d:3,0", b"+s", b"+w:2", b"+l", b"\xff\xfe", b"%s{}")
LARGEST = 2**63 - 1

Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
Said = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Counted:
    """What was given out and released of one kind, and what was released twice."""

    def __init__(self, release_at):
        self.given = self.released = self.wrongly = 0
        self.release_at = release_at
        self.callback = Release(self.release)
        self.address = ctypes.cast(self.callback, ctypes.c_void_p).value

    def release(self, struct_address):
        field = ctypes.c_uint64.from_address(struct_address + self.release_at)
        self.wrongly += field.value != self.address
        field.value = 0
        self.released += 1

    def begin(self):
        self.given = self.released = self.wrongly = 0


SCHEMAS, ARRAYS, STREAMS = Counted(7 * 8), Counted(8 * 8), Counted(3 * 8)
CURRENT = []                    # the Fields that the stream's functions speak for


class Lists:
    """Lists of one length, which are around the array or around other lists; sound until they are changed."""

    def __init__(self, source):
        self.size, self.length, self.offset = source.byte() % 5, source.byte() % 4, source.byte() % 3
        self.null_count, self.n_buffers, self.n_children, self.has_child = 0, 1, 1, True
        if source.byte() % 4 == 0:
            source.choice(LIST_CHANGES)(self, source)

    def is_sound(self):
        return (0 <= self.size < 1 << 31 and self.length >= 0 and self.offset >= 0
                and self.offset + self.length <= LARGEST and self.null_count in (0, -1) and self.n_buffers == 1
                and self.n_children == 1 and self.has_child and self.null_count <= self.length)

    def children(self, child):
        return BLOCKS.new(packed([BLOCKS.new(child) if self.has_child else 0]))

    def schema(self, child):
        """The release callback of a child is not called: that of its parent releases it."""
        text = BLOCKS.new(b"+w:%d\0" % self.size)
        return SCHEMA.pack(text, 0, 0, 0, self.n_children, self.children(child), 0, SCHEMAS.address, 0)

    def array(self, length, child):
        return ARRAY.pack(length, self.null_count, self.offset, self.n_buffers, self.n_children,
                          BLOCKS.new(packed([0])), self.children(child), 0, ARRAYS.address, 0)


class Fields:
    """An array in Python's numbers, sound until it is changed."""

    def __init__(self, source):
        self.format = source.choice(tuple(LETTERS))
        self.length, self.null_count, self.offset, self.n_buffers = 6, 0, 0, 2
        self.data = MEMORY.address + 64
        self.has_buffers, self.dictionary, self.released, self.no_schema = True, False, False, False
        self.extension = None   # the name of an extension type
        self.bits = None        # eight bytes of validity
        self.lists = []         # around the array, the innermost first
        self.device_type, self.device_id, self.event = 1, -1, False
        self.chunks, self.error, self.said = [6], 0, False
        self.array_name, self.schema_name, self.stream_name = b"arrow_array", b"arrow_schema", b"arrow_array_stream"
        while source.more():
            source.choice(CHANGES)(self, source)
        if not self.has_room(self.length) or self.lists:
            self.bits = None

    def has_room(self, length):
        """For as many bits: where nobody has counted the nulls, they are read, and their end is not to be seen."""
        return self.null_count != -1 or (0 <= self.offset <= 64 and 0 <= length <= 64 - self.offset)

    def schema(self):
        SCHEMAS.given += bool(self.lists) or not self.no_schema
        text = BLOCKS.new(self.format + b"\0")
        metadata = 0 if self.extension is None else BLOCKS.new(struct.pack(
            f"=ii20si{len(self.extension)}s", 1, 20, b"ARROW:extension:name", len(self.extension), self.extension))
        content = SCHEMA.pack(text, 0, metadata, 0, 0, 0, MEMORY.address if self.dictionary else 0,
                              0 if self.no_schema else SCHEMAS.address, 0)
        for lists in self.lists:
            content = lists.schema(content)
        return content

    def array(self, length=None):
        """Of the length that a chunk of a stream has, or else of its own."""
        ARRAYS.given += bool(self.lists) or not self.released
        lengths = [self.length, *[lists.length for lists in self.lists]]
        if length is not None:
            lengths[-1] = length
        bits = 0 if self.bits is None or not self.has_room(lengths[0]) else BLOCKS.new(self.bits)
        buffers = BLOCKS.new(packed([bits, self.data])) if self.has_buffers else 0
        content = ARRAY.pack(lengths[0], self.null_count, self.offset, self.n_buffers, 0, buffers, 0, 0,
                             0 if self.released else ARRAYS.address, 0)
        for lists, its_length in zip(self.lists, lengths[1:], strict=True):
            content = lists.array(its_length, content)
        return content

    def nulls(self):
        if self.null_count != -1:
            return self.null_count
        if self.bits is None:
            return 0
        bits = int.from_bytes(self.bits, "little") >> self.offset
        return self.length - (bits & ((1 << self.length) - 1)).bit_count()

    def described(self):
        """What is refused has no shape."""
        sound = (
            self.format in LETTERS and not self.extension and not self.dictionary and not self.released
            and not self.no_schema
            and self.n_buffers == 2 and self.has_buffers and self.length >= 0 and self.offset >= 0
            and self.offset + self.length <= LARGEST and -1 <= self.null_count <= self.length and not self.nulls()
            and all(lists.is_sound() for lists in self.lists) and len(self.lists) < 64)
        if not sound:
            return Described(None, None, None, 1)
        dtype, size = LETTERS[self.format]
        shape, first, count = [self.length], 0, self.length
        if self.lists:
            shape, count = [self.lists[-1].length], self.lists[-1].length
        for level, lists in reversed(list(enumerate(self.lists))):
            shape.append(lists.size)
            first, count = (first + lists.offset) * lists.size, count * lists.size
            if first + count > (self.lists[level - 1].length if level else self.length):
                return Described(None, None, None, 1)
        strides = [size * math.prod(shape[axis + 1:]) for axis in range(len(shape))]
        return Described(self.data + (first + self.offset) * size, shape, strides, size, dtype, True)


def nest(fields, source):
    fields.lists.append(Lists(source))


def set_address(fields, source):
    fields.data = (MEMORY.address + source.number()) & 0xFFFFFFFFFFFFFFFF


def set_bits(fields, source):
    fields.bits, fields.null_count = source.take(8), -1


LIST_CHANGES = (
    set_number("size", 64), set_number("length", 64), set_number("offset", 64), set_number("null_count", 64),
    set_number("n_buffers", 64), set_number("n_children", 64), set_choice("has_child", (False, True)),
)
CHANGES = (
    set_number("length", 64), set_number("offset", 64), set_number("null_count", 64), set_number("n_buffers", 64),
    set_choice("format", FORMATS), set_address, lambda fields, source: setattr(fields, "data", 0), set_bits,
    set_choice("has_buffers", (False, True)), set_choice("dictionary", (False, True)),
    set_choice("released", (False, True)), set_choice("no_schema", (False, True)),
    set_number("device_type", 32), set_number("device_id", 64), set_choice("event", (False, True)),
    lambda fields, source: setattr(fields, "chunks", [source.number() for _ in range(source.byte() % 5)]),
    set_number("error", 32), set_choice("said", (False, True)),
    set_choice("array_name", (b"arrow_array", b"arrow_device_array", b"arrow_schema", b"dltensor")),
    set_choice("schema_name", (b"arrow_schema", b"arrow_array", b"")),
    set_choice("stream_name", (b"arrow_array_stream", b"arrow_array", b"")),
    set_choice("extension", (None, b"", b"fixed.point")), nest, nest,
)


# ---- a stream --------------------------------------------------------------------------------------------------------

@Call
def get_schema(_, out):
    ctypes.memmove(out, CURRENT[-1].schema(), SCHEMA.size)
    return CURRENT[-1].error if CURRENT[-1].said else 0


@Call
def get_next(_, out):
    fields = CURRENT[-1]
    if fields.left:
        ctypes.memmove(out, fields.array(wrapped(fields.left.pop(0), 64)), ARRAY.size)
    else:
        ctypes.memset(out, 0, ARRAY.size)
    return fields.error


@Said
def get_last_error(_):
    return MEMORY_OF_TEXT if CURRENT[-1].said else None


TEXT = ctypes.create_string_buffer(b"no disk \xff")
MEMORY_OF_TEXT = ctypes.addressof(TEXT)
FUNCTIONS = [ctypes.cast(function, ctypes.c_void_p).value for function in (get_schema, get_next, get_last_error)]


# ---- holders ---------------------------------------------------------------------------------------------------------

class OfArray:
    def __init__(self, fields):
        self.fields = fields

    def __arrow_c_array__(self, requested_schema=None):
        return (new_capsule(BLOCKS.new(self.fields.schema()), self.fields.schema_name, None),
                new_capsule(BLOCKS.new(self.fields.array()), self.fields.array_name, None))


class OfDeviceArray:
    def __init__(self, fields):
        self.fields = fields

    def __arrow_c_device_array__(self, requested_schema=None, **keywords):
        fields = self.fields
        event = BLOCKS.new(packed([MEMORY.address])) if fields.event else 0
        content = fields.array() + DEVICE.pack(fields.device_id, fields.device_type, event, 0, 0, 0)
        name = b"arrow_device_array" if fields.array_name == b"arrow_array" else fields.array_name
        if name == b"arrow_device_array":
            return new_capsule(BLOCKS.new(fields.schema()), fields.schema_name, None), new_capsule(
                BLOCKS.new(content), name, None)
        return new_capsule(BLOCKS.new(fields.schema()), fields.schema_name, None), new_capsule(
            BLOCKS.new(content), b"other", None)


class OfStream:
    def __init__(self, fields):
        self.fields = fields

    def __arrow_c_stream__(self, requested_schema=None):
        self.fields.left = list(self.fields.chunks)
        STREAMS.given += not self.fields.released and self.fields.stream_name == b"arrow_array_stream"
        content = STREAM.pack(*FUNCTIONS, 0 if self.fields.released else STREAMS.address, 0)
        return new_capsule(BLOCKS.new(content), self.fields.stream_name, None)


class Refusing:
    __arrow_c_array__ = __arrow_c_device_array__ = __arrow_c_stream__ = fail


class Instance(OfArray):
    def __getattribute__(self, name):
        if name not in ("__arrow_c_array__", "fields"):
            raise Absent(name)
        return object.__getattribute__(self, name)


class Answering:
    def __init__(self, answer):
        self.answer = answer

    def __arrow_c_array__(self):
        return self.answer


def holder_of(fields, form, source):
    if form < 12:
        return (OfArray, OfDeviceArray, OfStream)[form % 3](fields)
    if form < 13:
        return Refusing()
    return Answering(thing(source)) if form < 14 else Instance(fields)


def run(source):
    mode, form = source.byte(), source.byte() % 16
    action, copy = ACTIONS[mode % 8], COPIES[mode // 8 % 3]
    fields = Fields(source)
    described = fields.described()
    # Of a stream the chunks say how long it is, and of another device nothing may be read.
    sound_names = fields.array_name == b"arrow_array" and fields.schema_name == b"arrow_schema"
    plain = form < 12 and form % 3 == 0 and sound_names
    if not (plain and described.may_copy()):
        copy = False
    CURRENT.append(fields)
    for kind in (SCHEMAS, ARRAYS, STREAMS):
        kind.begin()
    holder = holder_of(fields, form, source)
    made, taken = hand_over(holder, action, copy, (dlbridge.DLBridgeError, ProducersError))
    if plain:
        check_made(fields, described, action, copy, made, taken)
    del made, holder
    CURRENT.clear()
    BLOCKS.free()
    check_released(form, taken and action is not explained)
    MEMORY.check()


def check_released(form, taken):
    check(not (ARRAYS.wrongly or SCHEMAS.wrongly or STREAMS.wrongly), "released twice")
    check(STREAMS.given == STREAMS.released, "streams", STREAMS.given, STREAMS.released)
    if form < 12 and form % 3 == 2:
        # What a stream gives out is its consumer's.
        check(ARRAYS.given == ARRAYS.released, "arrays", ARRAYS.given, ARRAYS.released)
        check(SCHEMAS.given == SCHEMAS.released, "schemas", SCHEMAS.given, SCHEMAS.released)
    else:
        # What is in a capsule is the capsule's, unless it was taken.
        check(taken <= ARRAYS.released <= 1 if form < 12 else True, "arrays", ARRAYS.released)
        check(not SCHEMAS.released, "schemas", SCHEMAS.released)


def check_made(fields, described, action, copy, made, taken):
    if taken and action is not explained:
        check(described.span is not None, "accepted", fields.__dict__)
    if described.is_real() and action in (take, every_face) and described.nbytes() <= LARGEST_COPY:
        check(taken, "refused", fields.__dict__)
    if type(made) is dlbridge.Tensor:
        if copy is False or not copy:
            described.check_tensor(made)
        if described.may_copy():
            check_elements(made, described, fields.__dict__)
