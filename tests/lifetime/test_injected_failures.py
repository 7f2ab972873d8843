"""Whatever fails on the way, an allocation or a call into Python: nothing is lost, nothing is let go twice.

The counting wrapper of malloc() is failing.c, what runs under it failing.py. It is compiled for the test, and is for
glibc alone, whose own functions it stands before.
"""

import contextlib
import functools
import gc
import json
import os
import subprocess
import sys
import types

import numpy as np
import pytest
from support import optional
from support.child import run_in_child
from support.compiling import HERE, compiled

import dlbridge
from dlbridge.testing.producers import Producer

pytestmark = pytest.mark.needs("plain memory")


@pytest.fixture(scope="module")
def wrapper(tmp_path_factory):
    return compiled("failing.c", tmp_path_factory.mktemp("failing"))


def run(wrapper, program, *arguments):
    """What a program prints that runs under the wrapper."""
    environment = {
        **os.environ,
        "LD_PRELOAD": os.fspath(wrapper),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, HERE / program, *arguments], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    return json.loads(done.stdout)


# ---- allocations -----------------------------------------------------------------------------------------------------

# Python 3.10 aborts where it has no memory to extend a traceback; without a GIL, malloc() is not Python's allocator.
without_memory = pytest.mark.needs("Python 3.11", "a GIL")


PARTS = 4               # each a test, so that several workers share what takes minutes


@without_memory
@pytest.mark.parametrize("part", range(PARTS))
def test_every_allocation_of_every_path_fails(wrapper, part):
    """Nobody is killed, nothing is written, nothing is lost and nothing is let go twice."""
    failed = run(wrapper, "failing.py", f"{part}::{PARTS}", *["full"] * optional.FULL)
    assert len(failed) >= 30 // PARTS
    assert {source: said for source, (_, said) in failed.items() if said} == {}
    for source, (paths, _) in failed.items():
        assert len(paths) >= 14, source
    outcomes = [sum(outcomes.values()) for paths, _ in failed.values() for outcomes, _ in paths.values()]
    assert sum(outcomes) > 10_000 // PARTS
    assert outcomes.count(0) < len(outcomes) / 20, "of few paths the interpreter has all memory in stock"
    wrong = {
        f"{source} {path}": wrong
        for source, (paths, _) in failed.items() for path, (_, wrong) in paths.items() if wrong
    }
    assert wrong == {}


# ---- calls into Python -----------------------------------------------------------------------------------------------

class Steps:
    """Counts the calls into code of a producer or a consumer, and raises in one of them."""

    def __init__(self, error):
        self.error = error
        self.count = 0
        self.failing = None

    def __call__(self, value=None):
        self.count += 1
        if self.count == self.failing:
            raise self.error
        return value


class Meta(type):
    """Of a type whose attributes are steps too."""

    step = Steps(None)

    def __getattribute__(cls, name):
        if name.startswith(("__dlpack", "__array")):
            Meta.step()
        return super().__getattribute__(name)


class Asked:
    """Every attribute is a step, and so is every call of a method."""

    def __init__(self, step, **attributes):
        self.__dict__.update(attributes, step=step)

    def __getattribute__(self, name):
        own = object.__getattribute__(self, "__dict__")
        if name == "__dict__":
            return own
        if name == "__class__":
            return object.__getattribute__(self, name)
        own["step"]()
        if name in own:
            return own[name]
        raise AttributeError(name)


def method(step, function):
    def call(*positional, **keywords):
        step()
        result = function(*positional, **keywords)
        step()
        return result

    return call


def proxy(step, producer):
    return Asked(
        step, __dlpack__=method(step, producer.__dlpack__), __dlpack_device__=method(step, producer.__dlpack_device__))


def plain_class(step, producer):
    class Source(metaclass=Meta):
        def __dlpack__(self, **keywords):
            return step(producer.__dlpack__(**keywords))

        def __dlpack_device__(self):
            return step(producer.__dlpack_device__())

    Meta.step = step
    return Source()


def registered(step, producer):
    class Source:
        pass

    def accepts(kind):
        return kind is Source and step(True)

    dlbridge.register_source(accepts, method(step, lambda source: producer))
    return Source()


class Flag:
    """Whether memory is read-only, which is a step to ask."""
    def __init__(self, step):
        self.step = step

    def __bool__(self):
        return self.step(False)


class Entries(dict):
    def __init__(self, step, entries):
        super().__init__(entries)
        self.step = step

    def keys(self):
        return self.step(super().keys())

    def __getitem__(self, name):
        return self.step(super().__getitem__(name))

    def __iter__(self):
        return self.step(super().__iter__())


def interface(step, producer):
    array = producer.array
    entries = array.__array_interface__ | {"data": (array.ctypes.data, Flag(step))}
    return Asked(step, __array_interface__=Entries(step, entries))


def struct(step, producer):
    return Asked(step, __array_struct__=producer.array.__array_struct__)


def attributes(step, producer):
    return Asked(step, **{
        f"__array_{name}__": value for name, value in producer.array.__array_interface__.items()
        if name in ("shape", "typestr", "data")})


def named(step):
    return "numpy"


def space(step):
    return Asked(step, from_dlpack=method(step, np.from_dlpack), __name__="space", __version__="1")


def registered_target(step):
    dlbridge.register_target("stepping", method(step, np.from_dlpack))
    return "stepping"


PRODUCERS = [proxy, plain_class, registered, interface, struct, attributes]
CONSUMERS = [named, space, registered_target]
ERRORS = [ValueError("raised"), KeyboardInterrupt("raised"), MemoryError("raised"), AttributeError("raised"),
          TypeError("raised"), StopIteration("raised")]


def is_told(error, raised):
    """Whether an error of a producer's or a consumer's code arrived, as it was or as the cause of one of dlbridge's."""
    return raised is error or (isinstance(raised, dlbridge.DLBridgeError) and raised.__cause__ is error)


# Each error of each producer, before a consumer in turn; with --full before all.
STEPS = [(make, make_target, error) for first, make in enumerate(PRODUCERS) for second, error in enumerate(ERRORS)
         for make_target in (CONSUMERS if optional.FULL else CONSUMERS[(first + second) % len(CONSUMERS):][:1])]


@pytest.mark.parametrize(
    ("make", "make_target", "error"), STEPS, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_every_call_into_python_raises_in_turn(make, make_target, error):
    failing = 0
    while True:
        failing += 1
        step = Steps(error)
        producer = Producer()
        source, target = make(step, producer), make_target(step)
        references = sys.getrefcount(producer.array)
        step.count, step.failing = 0, failing
        raised = None
        try:
            result = dlbridge.convert(source, target)
        except BaseException as caught:
            raised = caught
            caught.__traceback__ = caught.__context__ = None
        reached, step.failing = step.count >= failing, None
        if raised is None:
            assert not reached or isinstance(error, AttributeError), "what is not there may be done without"
            assert result.tolist() == producer.array.tolist()
            del result
        else:
            missed = isinstance(error, AttributeError) and isinstance(raised, dlbridge.DLBridgeError)
            assert is_told(error, raised) or missed, (failing, repr(raised))
        del raised
        error.__traceback__ = error.__context__ = error.__cause__ = None
        producer.forget()
        gc.collect()
        held = sys.getrefcount(producer.array) - references
        assert held == producer.deleted == producer.exported, "each export has one"
        again = dlbridge.convert(source, "numpy")
        assert again.tolist() == producer.array.tolist()
        del again, source
        if not reached:
            break
    assert failing > 2


# ---- code that comes back --------------------------------------------------------------------------------------------

def convert_in_circles(make):
    with pytest.raises(RecursionError):
        dlbridge.convert(b"abc", make())


def targets_that_lead_to_each_other():
    dlbridge.register_target("here", functools.partial(dlbridge.convert, to="there"))
    dlbridge.register_target("there", functools.partial(dlbridge.convert, to="here"))
    return "here"


def namespace_that_leads_to_itself():
    space = types.SimpleNamespace()
    space.from_dlpack = functools.partial(dlbridge.convert, to=space)
    return space


def function_that_leads_to_itself():
    space = types.SimpleNamespace()
    space.from_dlpack = lambda tensor: dlbridge.convert(tensor, space)
    return space


@pytest.mark.parametrize(
    "make", [targets_that_lead_to_each_other, namespace_that_leads_to_itself, function_that_leads_to_itself],
    ids=lambda make: make.__name__)
def test_circle_of_consumers_ends_as_circles_do_in_python(make):
    """Not as an error of a library's: it knows of none."""
    run_in_child(convert_in_circles, make).result()


def device_memory():
    return types.SimpleNamespace(
        __cuda_array_interface__={"shape": (1,), "typestr": "|u1", "data": (8, False), "version": 2})


COLLECTED = {
    "shared": (lambda: bytearray(8), {}),
    "copied": (lambda: np.zeros((2, 3), ">f4"), {}),
    "refused": (lambda: np.zeros((2, 3), ">f4"), {"copy": False}),
    "no array": (object, {}),
    "without a driver": (device_memory, {}),
}


def convert_within_collections(make, keywords):
    """Each collection converts too, and so collections within it do."""
    depth = most = 0

    def convert_all():
        for target in ("numpy", "memoryview", "dlpack", "dlbridge"):
            with contextlib.suppress(dlbridge.DLBridgeError):
                dlbridge.convert(make(), target, **keywords)

    def collected(phase, info):
        nonlocal depth, most
        if depth < 3:
            depth += 1
            most = max(most, depth)
            convert_all()
            depth -= 1

    gc.callbacks.append(collected)
    gc.set_threshold(1, 1, 1)
    for _ in range(20):
        convert_all()
    gc.callbacks.remove(collected)
    return most


@pytest.mark.needs("a GIL")     # without, CPython 3.13 has a threshold of its own
@pytest.mark.parametrize(("make", "keywords"), COLLECTED.values(), ids=COLLECTED)
def test_garbage_may_be_collected_anywhere_and_convert_then(make, keywords):
    outcome = run_in_child(convert_within_collections, make, keywords)
    assert outcome.result() >= 1
    assert outcome.stderr == ""
