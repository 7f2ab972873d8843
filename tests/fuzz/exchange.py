"""The C exchange API: a hostile exporter behind the table, and hostile structs for the slots of dlbridge's own."""

import ctypes
import sys
import types

import dlbridge
from dlbridge.testing import abi
from dlbridge.testing.producers import capsule_pointer, new_capsule
from fuzz.capsules import LEGACY, VERSIONED, Fields, check_made
from fuzz.harness import (
    ACCOUNT,
    ACTIONS,
    BLOCKS,
    COPIES,
    DELETER,
    MEMORY,
    Described,
    ProducersError,
    check,
    hand_over,
)

FromPyObject = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
Stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
SetError = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
TENSOR_BYTES = ctypes.sizeof(abi.DLTensor)


class Answer:
    """What the slots say next."""

    code = address = stream = 0
    content = b""


@FromPyObject
def export(_, out):
    ctypes.c_void_p.from_address(out).value = Answer.address
    return Answer.code


@FromPyObject
def borrow(_, out):
    ctypes.memmove(out, Answer.content, TENSOR_BYTES)
    return Answer.code


@Stream
def work_stream(device_type, device_id, out):
    ctypes.c_void_p.from_address(out).value = Answer.stream
    return Answer.code


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value


# Fails with the exception that bool(obj) raises, or answers whatever that is without having filled anything in.
IS_TRUE = address_of(ctypes.pythonapi.PyObject_IsTrue)


class StridedMemoryView:
    """Goes by the name of a type that dlbridge takes the raw way."""

    __module__ = "cuda.core._memoryview"
    truth = False

    def __bool__(self):
        if self.truth is None:
            raise ProducersError("an exporter's own")
        return self.truth

    def __dlpack_device__(self):
        return (1, 0)


class FailingView(StridedMemoryView):
    """Its slot is PyObject_IsTrue()."""


class OldView(StridedMemoryView):
    """Its table is of another major version, and leads to one that dlbridge reads."""


class Tensor:
    """Goes by the name of torch's, whose borrowing slot is used."""

    __module__ = "torch"
    __torch_function__ = None           # by which a type of torch is known
    requires_grad = negative = conjugated = False

    def is_neg(self):
        return self.negative

    def is_conj(self):
        return self.conjugated

    def detach(self):
        return self


def table(kind, from_object, major=1, older=None, borrowed=0):
    made = abi.DLPackExchangeAPI()
    made.version = abi.DLPackVersion(major, 3)
    made.prev_api = None if older is None else ctypes.addressof(older)
    for offset, address in ((24, from_object), (40, borrowed), (48, address_of(work_stream))):
        ctypes.c_void_p.from_address(ctypes.addressof(made) + offset).value = address
    kind.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(made), abi.EXCHANGE_NAME, None)
    return made


TABLES = [table(StridedMemoryView, address_of(export)), table(FailingView, IS_TRUE)]
TABLES.append(table(OldView, 8, 2, TABLES[0]))
TABLES.append(table(Tensor, address_of(export), borrowed=address_of(borrow)))

OWN = abi.DLPackExchangeAPI.from_address(capsule_pointer(
    dlbridge.Tensor.__dict__["__dlpack_c_exchange_api__"], abi.EXCHANGE_NAME))


class Library:
    """Puts the types where dlbridge looks for them, for as long as a case runs."""

    MODULES = ("torch", "cuda", "cuda.core._memoryview")

    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        self.before = {name: sys.modules.get(name) for name in self.MODULES}
        torch = types.ModuleType("torch")
        torch.Tensor, torch.__file__ = Tensor, "/torch/__init__.py"
        sys.modules["torch"] = torch
        views = types.ModuleType("cuda.core._memoryview")
        views.StridedMemoryView = self.kind
        sys.modules["cuda.core._memoryview"] = views
        sys.modules.setdefault("cuda", types.ModuleType("cuda"))

    def __exit__(self, *_):
        for name, module in self.before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


KINDS = (StridedMemoryView, Tensor, OldView, FailingView)
METAL = 8           # on which torch's view is wrong (pytorch#182924), so that the managed export is asked for
_get = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
import_slot = _get(ctypes.c_void_p.from_address(ctypes.addressof(OWN) + 32).value)
allocate_slot = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, SetError)(
    ctypes.c_void_p.from_address(ctypes.addressof(OWN) + 16).value)
_decrease = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", ctypes.pythonapi))
errors = []


@SetError
def set_error(context, kind, message):
    errors.append((kind, message))


def run(source):
    mode = source.byte()
    action, copy, way = ACTIONS[mode % 8], COPIES[mode // 8 % 3], source.byte() % 8
    code, truth = source.choice((0, 0, 0, -1, 1)), source.choice((False, True, None))
    kind = KINDS[way % 4]
    marks = source.byte() if kind is Tensor and way < 6 else 0
    fields = Fields(source)
    borrowed = kind is Tensor and way < 6 and fields.device_type != METAL
    described = fields.described(0 if borrowed else fields.flags & 7)
    if (fields.major != 1 and not borrowed) or (code and way < 6):
        described = Described(None, None, None, 1)
    if not described.may_copy():
        copy = False
    if way == 7:
        run_allocation(fields)
    elif way == 6:
        run_import(fields, described)
    else:
        run_export(fields, described, action, copy, kind, borrowed, code, truth, marks)
    MEMORY.check()


def fill(fields):
    tensor = fields.tensor()
    deleter = DELETER if fields.has_deleter else 0
    address = ACCOUNT.open(VERSIONED.pack(fields.major, fields.minor, 0, deleter, fields.flags, *tensor))
    return address, LEGACY.pack(*tensor, 0, 0)[:TENSOR_BYTES]


def run_export(fields, described, action, copy, kind, borrowed, code, truth, marks):
    Answer.address, Answer.content = fill(fields)
    Answer.code = code
    thing = kind()
    if kind is Tensor:
        thing.requires_grad, thing.negative, thing.conjugated = marks & 1 != 0, marks & 2 != 0, marks & 4 != 0
    else:
        thing.truth = truth
    lazy = kind is Tensor and marks & 7
    if lazy and not described.may_copy():
        copy = False
    with Library(kind if kind is not Tensor else StridedMemoryView):
        made, taken = hand_over(thing, action, copy, (dlbridge.DLBridgeError, ProducersError))
        if kind is FailingView:
            check(not taken or action is ACTIONS[6], "nothing was exported")
        elif not lazy:
            check_made(fields, described, action, copy, made, taken)
        given = kind is not FailingView and not borrowed and not code
        del made, thing
    ACCOUNT.settle(given and fields.has_deleter)


def run_import(fields, described):
    """The slot steals, also when it fails."""
    address, _ = fill(fields)
    out = ctypes.c_void_p()
    made = None
    try:
        code = import_slot(address, ctypes.addressof(out))
        check(code == 0 and out.value, "neither a Tensor nor an error")
        made = ctypes.cast(out, ctypes.py_object).value
        _decrease(out)
    except dlbridge.DLBridgeError:
        pass
    check_made(fields, described, ACTIONS[0], False, made, made is not None)
    del made
    ACCOUNT.settle(fields.has_deleter)


def run_allocation(fields):
    """Only dtype, ndim, shape and device of a prototype count; what is given has them, and is let go."""
    _, prototype = fill(fields)
    out = ctypes.c_void_p()
    errors.clear()
    fields.flags = fields.byte_offset = 0
    fields.has_strides = False
    described = fields.described(0)
    if described.span is not None and described.nbytes() > 1 << 20:
        BLOCKS.free()
        return                  # memory is there for a lot of that
    code = allocate_slot(BLOCKS.new(prototype), ctypes.addressof(out), None, set_error)
    BLOCKS.free()
    check(len(errors) == (code != 0) and (code == 0) == bool(out.value), "errors", code, errors, out.value)
    if code == 0:
        check(described.span is not None, "allocated", fields.__dict__)
        made = abi.DLManagedTensorVersioned.from_address(out.value)
        shape = tuple(made.dl_tensor.shape[:made.dl_tensor.ndim])
        check(shape == tuple(described.shape), shape, described.shape)
        ctypes.memset(made.dl_tensor.data or 0, 7, 0 if 0 in shape else described_bytes(fields, described))
        made.deleter(out.value)


def described_bytes(fields, described):
    bits = fields.bits * fields.lanes
    return described.nbytes() if bits >= 8 else (described.nbytes() * bits + 7) // 8
