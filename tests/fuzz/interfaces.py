"""``__array_interface__``, versions 2 and 3: entries of any type, mappings that change, properties that raise."""

import dlbridge
from fuzz.harness import (
    ACTIONS,
    COPIES,
    MEMORY,
    Absent,
    Described,
    ProducersError,
    check,
    check_elements,
    compact,
    every_face,
    explained,
    hand_over,
    take,
)
from fuzz.objects import Emptied, Entries, fail, thing

SOUND = (
    ("<f4", (2, 3)), ("<f8", (4,)), ("|u1", ()), (">i2", (3, 2)), ("<c8", (2, 2)), ("|b1", (0, 3)), (">c16", (2,)),
    ("<i8", (1, 1, 4)),
)
ALLOWED = (dlbridge.DLBridgeError, ProducersError)
NAMES = {f"{order}{kind}{size}": (name, size) for order in "<>=|" for kind, size, name in (
    ("b", 1, "bool"), ("i", 1, "int8"), ("i", 2, "int16"), ("i", 4, "int32"), ("i", 8, "int64"), ("u", 1, "uint8"),
    ("u", 2, "uint16"), ("u", 4, "uint32"), ("u", 8, "uint64"), ("f", 2, "float16"), ("f", 4, "float32"),
    ("f", 8, "float64"), ("c", 4, "complex32"), ("c", 8, "complex64"), ("c", 16, "complex128"))}
KEYS = ("shape", "strides", "data", "typestr", "offset", "mask", "version", "stream", "descr", 3)


def entries_of(source):
    typestr, shape = source.choice(SOUND)
    entries = {
        "shape": shape, "typestr": typestr, "data": (MEMORY.address + 64, False), "strides": None, "version": 3}
    while source.more():
        change = source.byte()
        if change % 16 < 12:
            entries[KEYS[change // 16 % len(KEYS)]] = thing(source)
        elif change % 16 < 14:
            entries.pop(KEYS[change // 16 % len(KEYS)], None)
        else:
            entries["data"] = (MEMORY.address + source.number(), Emptied(entries))
    return entries


class Holder:
    """The interface as a property of the type's."""

    def __init__(self, entries):
        self.entries = entries

    @property
    def __array_interface__(self):
        return self.entries


class CudaHolder(Holder):
    @property
    def __cuda_array_interface__(self):
        return self.entries

    __array_interface__ = property(fail)


class Bytes(bytearray):
    """An array interface that may lead back to the object's own buffer."""

    @property
    def __array_interface__(self):
        return self.entries


class Lying(Holder):
    @property
    def __array_interface__(self):
        return Entries(self.entries)

    __cuda_array_interface__ = __array_interface__


class Refusing(Holder):
    __array_interface__ = __cuda_array_interface__ = property(fail)


class Instance(Holder):
    """Only the object has it, and no other attribute."""

    def __getattribute__(self, name):
        if name not in ("__array_interface__", "__cuda_array_interface__"):
            raise Absent(name)
        return object.__getattribute__(self, "entries")


class VersionTwo:
    """The attributes of version 2; what is not given is absent."""

    def __getattr__(self, name):
        raise Absent(name)


VersionTwo.__array_typestr__ = VersionTwo.__array_shape__ = None


def holder_of(cuda, entries, form, source):
    if form < 8:
        return (CudaHolder if cuda else Holder)(entries)
    if form < 10:
        return Lying(entries)
    if form == 10:
        return Refusing(entries)
    if form == 11:
        return (CudaHolder if cuda else Holder)(thing(source))
    if form == 12:
        return Instance(entries)
    if form == 13:
        made = Bytes(64)
        made.entries = entries
        return made
    made = VersionTwo()
    for name, value in entries.items():
        setattr(made, f"__array_{name}__", value)
    return made


def is_number(value):
    return isinstance(value, int) and type(value) in (int, bool)


def are_numbers(value):
    return type(value) is tuple and all(is_number(each) and -(2**63) <= each < 2**63 for each in value)


def described(entries):
    """What may be accepted; None where an entry is no plain value, and so nothing is known."""
    shape, strides, typestr = entries.get("shape"), entries.get("strides"), entries.get("typestr")
    data = entries.get("data")
    if type(typestr) is not str or typestr not in NAMES or not are_numbers(shape) or len(shape) > 64:
        return None
    if strides is not None and (not are_numbers(strides) or len(strides) != len(shape)):
        return None
    name, item_bytes = NAMES[typestr]
    steps = strides if strides is not None else [step * item_bytes for step in compact(shape)]
    if type(data) is tuple and len(data) == 2 and is_number(data[0]) and type(data[1]) is bool:
        return Described(data[0], shape, steps, item_bytes, name, data[1])
    return Described(None, shape, steps, item_bytes, name)


def run(source, cuda=False):
    mode, form = source.byte(), source.byte() % 16
    action, copy = ACTIONS[mode % 8], COPIES[mode // 8 % 3]
    entries = entries_of(source)
    expected = described(entries)
    if expected is None or not expected.may_copy():
        copy = False
    plain = form < 10 and expected is not None
    swapped = plain and entries["typestr"][0] == ">" and expected.item_bytes > 1
    data = entries.get("data")
    made, taken = hand_over(holder_of(cuda, entries, form, source), action, copy, ALLOWED)
    if not plain:
        return
    if taken and action is not explained:
        check(expected.span is not None, "accepted", entries)
    if type(made) is dlbridge.Tensor:
        odd = any(stride % expected.item_bytes for stride in expected.strides)
        if copy is False or not (copy or swapped or odd):
            expected.check_tensor(made)
        if isinstance(data, (bytes, bytearray)) and 0 not in expected.shape:
            check(expected.span[1] - expected.span[0] <= len(data), "beyond the buffer", entries)
        if expected.may_copy() and not swapped and action in (take, every_face):
            check_elements(made, expected, entries)
    MEMORY.check()
