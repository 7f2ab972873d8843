"""DLPack capsules, versioned and legacy, of which any field may be wrong; by themselves and from ``__dlpack__``."""

import struct

import dlbridge
from fuzz.harness import (
    ACCOUNT,
    ACTIONS,
    BLOCKS,
    COPIES,
    DELETER,
    LARGEST_COPY,
    MEMORY,
    Described,
    Extents,
    capsule_is,
    check,
    check_elements,
    compact,
    every_face,
    explained,
    hand_over,
    make_capsule,
    packed,
    set_choice,
    set_number,
    take,
    wrapped,
)

LEGACY = struct.Struct("=QiiiBBHQQQQQ")
VERSIONED = struct.Struct("=IIQQQQiiiBBHQQQ")

INTEGERS = ((0, "int"), (1, "uint"))
# By code, bits, lanes: the name, and the bits of an element.
DTYPES = {
    (6, 8, 1): ("bool", 8),
    **{(code, bits, 1): (f"{kind}{bits}", bits) for code, kind in INTEGERS for bits in (8, 16, 32, 64)},
    **{(2, bits, 1): (f"float{bits}", bits) for bits in (16, 32, 64)},
    **{(5, bits, 1): (f"complex{bits}", bits) for bits in (32, 64, 128)},
    (4, 16, 1): ("bfloat16", 16),
    **{(code, 8, 1): (f"float8_{name}", 8) for code, name in enumerate(
        ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"), 7)},
    (15, 6, 1): ("float6_e2m3fn", 6),
    (16, 6, 1): ("float6_e3m2fn", 6),
    (17, 4, 1): ("float4_e2m1fn", 4),
    (17, 4, 2): ("float4_e2m1fn_x2", 8),
    **{(code, bits, 1): (f"{kind}{bits}", bits) for code, kind in INTEGERS for bits in (4, 2, 1)},
}
KINDS = tuple(DTYPES)
SHAPES = ((2, 3), (), (4,), (0, 3), (2, 2, 2), (1,), (3, 1, 5), (64,))
NAMES = (
    b"dltensor_versioned", b"dltensor", b"used_dltensor", b"used_dltensor_versioned", None, b"", b"dltensor_versioned2",
    b"\xff\xfe", b"DLTensor",
)
DEVICES = (1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 0, 5, 6, 19, 31, 32, 33, 64, -1)
KNOWN_DEVICES = frozenset(DEVICES[:16])
# Where memory is named by a handle, to which no offset can be added.
HANDLES = frozenset((4, 7, 8, 9, 12, 15, 16, 17, 18))


class Fields:
    """A DLTensor and what is around it, in Python's numbers."""

    def __init__(self, source):
        kind = source.choice(KINDS)
        shape = source.choice(SHAPES)
        self.data, self.device_type, self.device_id, self.ndim = MEMORY.address + 64, 1, 0, len(shape)
        self.code, self.bits, self.lanes = kind
        self.shape, self.strides = Extents(shape, 1), Extents(compact(shape), 1)
        self.has_shape = self.has_strides = self.has_deleter = True
        self.byte_offset = self.flags = 0
        self.major, self.minor = 1, 3
        self.name = 0
        while source.more():
            source.choice(CHANGES)(self, source)

    def tensor(self):
        """The arguments of struct.pack for a DLTensor."""
        return (
            self.data, self.device_type, self.device_id, self.ndim, self.code, self.bits, self.lanes,
            BLOCKS.new(packed(self.shape.of(self.ndim))) if self.has_shape else 0,
            BLOCKS.new(packed(self.strides.of(self.ndim))) if self.has_strides else 0, self.byte_offset)

    def described(self, flags):
        """What may be accepted: the shape is None where nothing may be."""
        name, bits = DTYPES.get((self.code, self.bits, self.lanes), (None, 0))
        sound = name is not None and 0 <= self.ndim <= 64 and (self.has_shape or not self.ndim)
        if not sound or self.device_type not in KNOWN_DEVICES or self.byte_offset > 2**62:
            return Described(None, None, None, 1)
        item_bytes = (bits + 7) // 8
        shape = self.shape.of(self.ndim)
        strides = self.strides.of(self.ndim) if self.has_strides else compact(shape)
        # Packed elements are compact, and touch no more than as many whole ones would.
        if bits < 8 and not flags & 4 and 0 not in shape and any(
                extent > 1 and stride != step
                for extent, stride, step in zip(shape, strides, compact(shape), strict=True)):
            return Described(None, None, None, 1)
        address = self.data + self.byte_offset if self.device_type not in HANDLES or not self.byte_offset else None
        return Described(
            address, shape, [stride * item_bytes for stride in strides], item_bytes, name, bool(flags & 1))


def set_kind(fields, source):
    fields.code, fields.bits, fields.lanes = source.choice(KINDS)


def set_data(fields, source):
    fields.data = (MEMORY.address + source.number()) & 0xFFFFFFFFFFFFFFFF


def set_extent(fields, source):
    fields.shape.set(source.byte(), source.number())


def set_stride(fields, source):
    fields.strides.set(source.byte(), source.number())


def set_compact(fields, source):
    fields.strides.values = [wrapped(step, 64) for step in compact(fields.shape.of(fields.ndim))]


CHANGES = (
    set_extent, set_stride, set_number("ndim", 32), set_kind, set_data, set_compact,
    set_number("data", 64, False), set_number("byte_offset", 64, False), set_number("flags", 64, False),
    set_number("code", 8, False), set_number("bits", 8, False), set_number("lanes", 16, False),
    set_choice("device_type", DEVICES), set_number("device_type", 32), set_number("device_id", 32),
    set_number("major", 32, False), set_number("minor", 32, False), set_choice("name", range(len(NAMES))),
    set_choice("has_shape", (False, True)), set_choice("has_strides", (False, True)),
    set_choice("has_deleter", (False, True)),
)


class Producer:
    """Gives one capsule out, and holds on to it."""

    def __init__(self, capsule, device):
        self.capsule = capsule
        self.device = device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def run(source):
    mode = source.byte()
    action, copy = ACTIONS[mode % 8], COPIES[mode // 8 % 3]
    versioned, by_producer = not mode // 24 & 1, mode // 48 & 1
    fields = Fields(source)
    name = NAMES[fields.name] if fields.name or versioned else b"dltensor"
    if name == (b"dltensor" if versioned else b"dltensor_versioned"):
        return                  # the name of another struct than is there: who believes it is lost
    flags = fields.flags & 7 if versioned else 0
    described = fields.described(flags)
    if name not in NAMES[:2] or (versioned and fields.major != 1):
        described = Described(None, None, None, 1)
    if not described.may_copy():
        copy = False
    tensor, deleter = fields.tensor(), DELETER if fields.has_deleter else 0
    capsule = make_capsule(ACCOUNT.open(
        VERSIONED.pack(fields.major, fields.minor, 0, deleter, fields.flags, *tensor) if versioned
        else LEGACY.pack(*tensor, 0, deleter)), name)
    thing = Producer(capsule, (fields.device_type, fields.device_id)) if by_producer else capsule
    made, taken = hand_over(thing, action, copy)
    check_made(fields, described, action, copy, made, taken)
    del made, thing
    ACCOUNT.settle(fields.has_deleter and name is not None and not capsule_is(capsule, name))
    MEMORY.check()


def check_made(fields, described, action, copy, made, taken):
    if taken and action is not explained:
        check(described.span is not None, "accepted", fields.__dict__)
    if fields.device_type == 1 and described.is_real() and action in (take, every_face) and (
            described.nbytes() <= LARGEST_COPY and not fields.flags & 2):
        check(taken, "refused", fields.__dict__)
    if type(made) is dlbridge.Tensor:
        if copy is not True:
            described.check_tensor(made)
        if fields.device_type == 1 and made.itemsize and described.may_copy():
            check_elements(made, described, fields.__dict__)
