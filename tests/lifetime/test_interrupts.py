"""An exception that is on its way when memory is let go arrives; one that comes in the midst leaves nothing behind."""

import array
import contextlib
import ctypes
import functools
import gc
import random
import signal
import sys
import threading

import numpy as np
import pytest
import torch
from support.child import run_in_child
from support.compiling import compiled
from support.optional import marked, needed_by, of, params

import dlbridge
from dlbridge.testing import abi
from dlbridge.testing.producers import Producer, capsule_name, capsule_pointer, new_capsule, rename_capsule

TARGETS = ("numpy", "torch", "jax", "memoryview", "dlpack", "dlbridge")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    for target in TARGETS:      # so that no import is interrupted
        with contextlib.suppress(dlbridge.MissingLibraryError):
            dlbridge.convert(np.zeros(2, np.float32), target)
    return ctypes.PyDLL(compiled("deleters.c", tmp_path_factory.mktemp("deleters")))


# ---- an exception that is on its way ---------------------------------------------------------------------------------

class Finalizer:
    """Its end runs code, with exceptions of its own."""

    ended = 0

    def __del__(self):
        type(self).ended += 1
        try:
            raise KeyError("must not be seen")
        except KeyError:
            dlbridge.convert(b"abc", "numpy")


class Array(np.ndarray):
    pass


class Buffer(bytearray):
    pass


def finalized_array():
    made = np.arange(6, dtype="float32").view(Array)
    made.finalizer = Finalizer()
    return made


def finalized_buffer():
    made = Buffer(24)
    made.finalizer = Finalizer()
    return made


def finalized_producer():
    class Owner(Producer):
        pass

    made = Owner(keeps=False)
    made.array = finalized_array()
    return made


def capsule_of(source):
    return dlbridge.asdlpack(source).__dlpack__(max_version=(1, 0))


OWNERS = pytest.mark.parametrize(
    "owner", [finalized_array, finalized_buffer, finalized_producer], ids=lambda make: make.__name__)
RESULTS = {
    "to numpy": functools.partial(dlbridge.convert, to="numpy"),
    "to memoryview": functools.partial(dlbridge.convert, to="memoryview"),
    "to dlbridge": functools.partial(dlbridge.convert, to="dlbridge"),
    "to torch": of("torch")(functools.partial(dlbridge.convert, to="torch", readonly="share")),
    "capsule": functools.partial(dlbridge.to_dlpack, max_version=(1, 0)),
    "legacy capsule": dlbridge.to_dlpack,
    "capsule of a Tensor": capsule_of,
    "array struct": lambda source: dlbridge.asdlpack(source).__array_struct__,
    "array over a Tensor": lambda source: np.asarray(dlbridge.asdlpack(source)),
    "array of a capsule": lambda source: np.from_dlpack(dlbridge.asdlpack(source)),
    "array of a memoryview": lambda source: dlbridge.convert(dlbridge.convert(source, "memoryview"), "numpy"),
}


@OWNERS
@pytest.mark.parametrize("make", params(RESULTS))
def test_exception_on_its_way_survives_the_end_of_a_result(library, make, owner):
    before = Finalizer.ended
    results = [make(owner())]
    gc.collect()
    assert Finalizer.ended == before
    assert library.drops_keeping_error(ctypes.py_object(results)) == 1
    gc.collect()
    assert Finalizer.ended == before + 1


@pytest.mark.parametrize("name", [abi.VERSIONED_NAME, abi.LEGACY_NAME], ids=["versioned", "legacy"])
@OWNERS
def test_exception_on_its_way_survives_a_deleter(library, owner, name):
    before = Finalizer.ended
    versioned = name == abi.VERSIONED_NAME
    capsule = dlbridge.to_dlpack(owner(), max_version=(1, 0) if versioned else None)
    address = capsule_pointer(capsule, name)
    struct = (abi.DLManagedTensorVersioned if versioned else abi.DLManagedTensor).from_address(address)
    deleter = ctypes.cast(struct.deleter, ctypes.c_void_p)
    used = ctypes.c_char_p(b"used_" + name)
    rename_capsule(capsule, used)
    assert library.deletes_keeping_error(deleter, ctypes.c_void_p(address)) == 1
    del capsule
    gc.collect()
    assert Finalizer.ended == before + 1


# ---- an exception that comes in the midst ----------------------------------------------------------------------------

class Counting:
    """Producers over one struct each, whose deleters are counted in C; which are due, the names of capsules tell."""

    def __init__(self, library, deleter="count_deleted", **fields):
        self.library = library
        self.producer = Producer(deleter=None, **fields)
        self.struct = self.producer.struct()
        self.struct.deleter = abi.Deleter(ctypes.cast(getattr(library, deleter), ctypes.c_void_p).value)
        self.given = []

    def __dlpack__(self, **keywords):
        capsule = new_capsule(ctypes.addressof(self.struct), b"dltensor_versioned", None)
        self.given.append(capsule)
        return self.given[-1]

    def __dlpack_device__(self):
        return self.producer.__dlpack_device__()

    def owed(self):
        """Deleters that are due, less those that ran."""
        due = sum([capsule_name(capsule).startswith(b"used") for capsule in self.given])
        self.given.clear()
        return due - self.library.take_deleted()


def from_dlpack(tensor):
    for _ in range(3):
        result = np.from_dlpack(tensor)
    return result


class Space:
    from_dlpack = staticmethod(from_dlpack)


MIDST = {
    **{f"to {target}": {"to": target} for target in TARGETS},
    **{f"to {target}, copied": {"to": target, "copy": True} for target in TARGETS},
    "to a namespace": {"to": Space()},
}
TRIES = 400


def loses_interrupts(keywords):
    """JAX 0.6 does so without dlbridge too: it goes on, makes an error of its own of one, or says it ignored one."""
    return keywords["to"] == "jax" and sys.modules["jax"].__version_info__ < (0, 8)


def interrupt_often(library, keywords, read_only):
    """Convert again and again until a signal comes, at another moment each time."""
    source = Counting(library, flags=abi.READ_ONLY if read_only else 0)
    memory = bytearray(64)
    buffer = array.array("f", range(6))
    references = sys.getrefcount(source)
    armed = False
    random.seed(1)

    def interrupt(*_):
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    def convert_on():
        # In a function, for in CPython 3.13 the end of a loop is outside of the try around it.
        while armed:
            dlbridge.convert(source, **keywords)
            dlbridge.convert(memory, **keywords)
            dlbridge.convert(buffer, **keywords)

    signal.signal(signal.SIGALRM, interrupt)
    wrong = []
    for attempt in range(TRIES):
        interrupted = False
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
            convert_on()
        except KeyboardInterrupt:
            interrupted = True
        except dlbridge.ConversionError:
            if armed or not loses_interrupts(keywords):
                raise
        gc.collect(0)
        owed = source.owed()
        memory.extend(b"more")          # nobody has it
        buffer.append(1.0)
        if owed or not (interrupted or loses_interrupts(keywords)) or sys.getrefcount(source) != references:
            gc.collect()
            wrong.append((attempt, owed, interrupted, sys.getrefcount(source) - references))
        if len(memory) > 4096:
            del memory[64:]
            del buffer[6:]
    dlbridge.convert(source, **keywords)
    return wrong


@pytest.mark.needs("a GIL")      # without it, this was not tried
@pytest.mark.parametrize("read_only", [False, True], ids=["writable", "read-only"])
@pytest.mark.parametrize("keywords", [
    marked(keywords, *needed_by(keywords["to"]), id=name) for name, keywords in MIDST.items()])
def test_signals_at_any_moment_leave_nothing_behind(library, keywords, read_only):
    outcome = run_in_child(interrupt_often, library, keywords, read_only)
    assert outcome.result() == []
    assert outcome.stderr == "" or loses_interrupts(keywords)


def interrupt_what_torch_is_told():
    """A lazy clone is looked at by calls of torch, behind guards that set what torch does with each call."""
    armed = False
    random.seed(1)

    def interrupt(*_):
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    def convert_on():
        while armed:
            dlbridge.convert(torch._lazy_clone(torch.ones(3)), "dlbridge")

    dlbridge.convert(torch.ones(3), "dlbridge")         # libtorch's functions are looked for with the first tensor
    signal.signal(signal.SIGALRM, interrupt)
    disabled = 0
    for _ in range(TRIES):
        with contextlib.suppress(KeyboardInterrupt):
            armed = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
            convert_on()
        disabled += torch._C._is_torch_function_all_disabled()
    return disabled


@pytest.mark.needs("torch 2.10", "a GIL")
def test_signals_at_any_moment_leave_torch_as_it_was():
    assert run_in_child(interrupt_what_torch_is_told).result() == 0


def interrupt_myself():
    """Let an exception be raised as soon as this thread runs code of Python's again."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threading.get_ident()), ctypes.py_object(KeyboardInterrupt))


def through_a_registered_source(library, source):
    class Registered:
        pass

    def acquire(_):
        capsule = source.__dlpack__()
        interrupt_myself()
        return capsule

    dlbridge.register_source(Registered, acquire)
    return dlbridge.convert(Registered(), "numpy")


def through_a_registered_target(library, source):
    def deliver(tensor):
        kept = np.from_dlpack(tensor)
        interrupt_myself()
        return kept

    dlbridge.register_target("interrupting", deliver)
    return dlbridge.convert(source, "interrupting")


def through_a_method(library, source):
    class Producer:
        def __dlpack__(self, **keywords):
            capsule = source.__dlpack__(**keywords)
            interrupt_myself()
            return capsule

    return dlbridge.convert(Producer(), "numpy")


@of("torch")
def through_a_deleter(library, source):
    interrupting = Counting(library, "count_and_interrupt")
    try:
        return dlbridge.convert(interrupting, "torch", copy=True)
    finally:
        source.given += interrupting.given


def run_on():
    """From 3.12 on, not every call looks for an interrupt."""
    for _ in range(100):
        gc.isenabled()


def interrupt_once(go, library):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    source = Counting(library)
    references = sys.getrefcount(source)
    interrupted = False
    try:
        go(library, source)
        run_on()
    except KeyboardInterrupt:
        interrupted = True
    gc.collect()
    return interrupted, source.owed(), sys.getrefcount(source) - references, dlbridge.convert(source, "numpy").sum()


@pytest.mark.parametrize(
    "go", params([through_a_registered_source, through_a_registered_target, through_a_method, through_a_deleter]),
    ids=lambda go: go.__name__)
def test_interrupt_in_what_a_conversion_calls_leaves_nothing_behind(library, go):
    outcome = run_in_child(interrupt_once, go, library)
    interrupted, owed, gained, total = outcome.result()
    assert interrupted
    assert owed == 0
    assert gained <= go.__name__.startswith(("through_a_registered", "through_a_method")), "a route keeps the type"
    assert total == 15
