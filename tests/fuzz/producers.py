"""``__dlpack__`` and ``__dlpack_device__``: signatures, keywords and answers of any kind, around a sound capsule."""

import dlbridge
from dlbridge.testing.producers import NOT_GIVEN
from fuzz.capsules import VERSIONED, Fields, check_made
from fuzz.harness import (
    ACCOUNT,
    ACTIONS,
    BLOCKS,
    COPIES,
    DELETER,
    MEMORY,
    Absent,
    Input,
    ProducersError,
    capsule_is,
    hand_over,
    make_capsule,
)
from fuzz.objects import thing


class OwnTypeError(ProducersError, TypeError):
    pass


class OwnValueError(ProducersError, ValueError):
    pass


class OwnBufferError(ProducersError, BufferError):
    pass


class OwnMemoryError(ProducersError, MemoryError):
    pass


ERRORS = (
    None, ProducersError("own"), OwnTypeError("an unexpected keyword argument 'max_version'"), OwnTypeError("own"),
    OwnValueError("own"), OwnBufferError("own"), OwnMemoryError(), Absent("own"),
)


class Base:
    """What ``__dlpack__`` and ``__dlpack_device__`` answer, or raise."""

    def __init__(self, capsule, device, error, device_error):
        self.capsule, self.device, self.error, self.device_error = capsule, device, error, device_error

    def answer(self):
        if self.error is not None:
            raise self.error.with_traceback(None)      # or it would grow with every case
        return self.capsule

    def __dlpack_device__(self):
        if self.device_error is not None:
            raise self.device_error.with_traceback(None)
        return self.device


class Modern(Base):
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.answer()


class Old(Base):
    def __dlpack__(self, stream=None):
        return self.answer()


class Bare(Base):
    def __dlpack__(self):
        return self.answer()


class Opaque(Base):
    def __dlpack__(self, *positional, **keywords):
        return self.answer()


class Half(Base):
    def __dlpack__(self, *, max_version=NOT_GIVEN, **keywords):
        return self.answer()


class WithoutDevice(Modern):
    __dlpack_device__ = property(lambda self: self.absent)


class Instance(Base):
    def __getattribute__(self, name):
        if name == "__dlpack__":
            return object.__getattribute__(self, "answer")
        return object.__getattribute__(self, name)


class NotCallable(Base):
    __dlpack__ = 3


class Positional(Base):
    def __dlpack__(self, stream, /):
        return self.answer()


TYPES = (Modern, Old, Bare, Opaque, Half, WithoutDevice, Instance, NotCallable, Positional)
DEVICES = ((1, 0), (2, 0), (3, 0), (10, 0), (13, 0), (99, 0), (1, None), (8, 1), (14, 0), [1, 0], (1,), None)


def run(source):
    mode = source.byte()
    action, copy = ACTIONS[mode % 8], COPIES[mode // 8 % 3]
    kind = source.choice(TYPES)
    wild = source.byte()
    error = source.choice(ERRORS) if wild & 1 else None
    device_error = source.choice(ERRORS) if wild & 2 else None
    answers = thing(source) if wild & 4 else NOT_GIVEN
    device = thing(source) if wild & 8 else source.choice(DEVICES)
    fields = Fields(Input(source.take(6) if wild & 16 else source.take(2)))
    fields.major, fields.has_deleter = 1, True
    described = fields.described(fields.flags & 7)
    if not described.may_copy():
        copy = False
    capsule = make_capsule(ACCOUNT.open(
        VERSIONED.pack(fields.major, fields.minor, 0, DELETER, fields.flags, *fields.tensor())), b"dltensor_versioned")
    made, taken = hand_over(
        kind(capsule if answers is NOT_GIVEN else answers, device, error, device_error), action, copy,
        (dlbridge.DLBridgeError, ProducersError, *WRONG_CALLS.get(kind, ())))
    if taken and answers is NOT_GIVEN:
        check_made(fields, described, action, copy, made, taken)
    del made
    ACCOUNT.settle(not capsule_is(capsule, b"dltensor_versioned"))
    BLOCKS.free()
    MEMORY.check()


# Python's own complaint about how a method was called, or that it is none.
WRONG_CALLS = {NotCallable: (TypeError,), Positional: (TypeError,), Instance: (TypeError,)}
