"""Many threads at once, for as long as is asked for: PYTHONPATH=tests python -m support.stress --seconds 60

They share arrays, Tensors, capsules and the kept routes, while sources and targets are registered and types come and
go. What is wrong at any time, or left over at the end, is an error, and the exit status 1.
"""

import argparse
import collections
import contextlib
import ctypes
import gc
import importlib.util
import itertools
import pickle
import random
import sys
import threading
import time
import traceback
import weakref

import numpy as np

import dlbridge
from dlbridge.testing import abi
from dlbridge.testing.producers import capsule_pointer, rename_capsule
from support.arrow_producers import OfArray, OfStream

TARGETS = ["numpy", "memoryview", "dlbridge"] + [
    name for name in ("torch", "jax") if importlib.util.find_spec(name) is not None]
GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
# Without the GIL, a bytearray before Python 3.14 loses count of who has its buffer.
COUNTS_EXPORTS = GIL or sys.version_info >= (3, 14)
VALUES = np.arange(24, dtype="float32")
SHOULD = VALUES.sum()


class Owned(np.ndarray):
    """An array that can be watched."""


class ArrayAgain(OfArray):
    """Gives the same capsules whenever it is asked, which no producer should."""

    def __init__(self):
        super().__init__()
        self.capsules = super().__arrow_c_array__()

    def __arrow_c_array__(self, requested_schema=None):
        return self.capsules


class StreamAgain(OfStream):
    def __init__(self):
        super().__init__(6)
        self.stream = super().__arrow_c_stream__()

    def __arrow_c_stream__(self, requested_schema=None):
        return self.stream


class Wrong(Exception):
    """What must not be."""


def expect(condition, *facts):
    if not condition:
        raise Wrong(*facts)


class Shared:
    """What all threads have in common."""

    def __init__(self):
        self.buffer = bytearray(VALUES.tobytes())
        self.array = VALUES.copy().view(Owned)
        self.reversed = VALUES.copy()[::-1]
        self.tensor = dlbridge.asdlpack(self.array)
        self.of_buffer = dlbridge.asdlpack(memoryview(self.buffer).cast("f"))
        self.results = collections.deque(maxlen=64)     # let go by whoever pushes one out
        self.capsules = collections.deque([self.capsule()], maxlen=1)
        self.arrows = collections.deque([ArrayAgain()], maxlen=1)
        self.numbers = itertools.count()
        self.wins = itertools.count()
        self.losses = itertools.count()

    def capsule(self):
        return dlbridge.to_dlpack(self.array, max_version=random.choice([(1, 0), None]))


# ---- what a thread does, over and over -------------------------------------------------------------------------------

def convert(shared):
    source = random.choice([shared.array, shared.reversed, shared.tensor, shared.of_buffer])
    result = dlbridge.convert(source, random.choice(TARGETS), copy=random.choice([None, True]))
    expect(dlbridge.convert(result, "numpy").sum() == SHOULD, result)
    shared.results.append(result)


def consume(shared):
    tensor = random.choice([shared.tensor, shared.of_buffer])
    array = np.from_dlpack(tensor)
    expect(array.ctypes.data == tensor.data_ptr, array)
    expect(memoryview(tensor).nbytes == VALUES.nbytes, tensor)
    expect(np.asarray(tensor).sum() == SHOULD, tensor)
    expect(np.from_dlpack(pickle.loads(pickle.dumps(tensor))).sum() == SHOULD, tensor)
    repr(tensor)
    shared.results.append(array)


def contend(shared, prizes, refusal):
    """Whatever is there for the one who comes first, and its array; who comes too late hears so."""
    try:
        source = prizes[0]
    except IndexError:
        return None, None
    try:
        array = dlbridge.convert(source, "numpy")
    except dlbridge.ConversionError as error:
        expect(refusal in str(error), error)
        next(shared.losses)
        return None, None
    next(shared.wins)
    return source, array


def race(shared):
    _, array = contend(shared, shared.capsules, "consumed already")
    if array is not None:
        expect(array.sum() == SHOULD, array)
        shared.capsules.append(shared.capsule())


def race_arrow(shared):
    source, array = contend(shared, shared.arrows, "consumed before")
    if array is not None:
        expect(array.tolist() == [0, 1, 2, 3, 4, 5], array)
        del array
        expect(source.released["array"] == 1, source.released)
        shared.arrows.append(random.choice([ArrayAgain, StreamAgain])())


def come_and_go(shared):
    """A type that nobody knows, in whatever slot its route falls."""
    class Producer:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    expect(dlbridge.convert(Producer(shared.array), "numpy").sum() == SHOULD, Producer)
    expect(dlbridge.asdlpack(Producer(shared.array)).data_ptr == shared.array.ctypes.data, Producer)


def register(shared):
    class Image:
        pass

    number = next(shared.numbers)
    name = f"total {number % 50}"
    if number < 200:            # each of them is asked about every new type
        dlbridge.register_source(Image, lambda image: shared.array)
        expect(dlbridge.convert(Image(), "numpy").sum() == SHOULD, Image)
    dlbridge.register_target(name, lambda tensor: float(np.from_dlpack(tensor).sum()))
    expect(dlbridge.convert(shared.array, name) == SHOULD, name)
    expect(name in dlbridge.targets(), name)


pthread_create = ctypes.CDLL(None).pthread_create
pthread_join = ctypes.CDLL(None).pthread_join


def delete_elsewhere(shared):
    """A consumer in C lets go in a thread that Python never saw."""
    capsule = dlbridge.to_dlpack(shared.buffer if COUNTS_EXPORTS else shared.array, max_version=(1, 0))
    address = capsule_pointer(capsule, abi.VERSIONED_NAME)
    rename_capsule(capsule, USED)
    deleter = abi.DLManagedTensorVersioned.from_address(address).deleter
    thread = ctypes.c_size_t()
    expect(pthread_create(ctypes.byref(thread), None, deleter, ctypes.c_void_p(address)) == 0)
    pthread_join(thread, None)


def explain(shared):
    str(dlbridge.explain(shared.array, random.choice(TARGETS)))
    with contextlib.suppress(dlbridge.UnsupportedError):
        dlbridge.convert([1, 2], "numpy")
    with contextlib.suppress(dlbridge.CopyRequiredError):
        dlbridge.convert(b"read-only", "dlpack", copy=False)


USED = ctypes.c_char_p(b"used_" + abi.VERSIONED_NAME)
TASKS = {
    convert: 40, consume: 20, race: 20, race_arrow: 10, come_and_go: 10, delete_elsewhere: 5, explain: 5, register: 1,
}


# ---- all of it -------------------------------------------------------------------------------------------------------

def work(shared, seed, until, done, errors):
    choose = random.Random(seed)
    try:
        while time.monotonic() < until and not errors:
            task = choose.choices(list(TASKS), TASKS.values())[0]
            task(shared)
            done[task.__name__] += 1
    except BaseException as error:
        errors.append(error)


def leftovers(shared):
    """What is still held after everything was let go."""
    array, buffer = weakref.ref(shared.array), shared.buffer
    shared.__dict__.clear()
    gc.collect()
    if array() is not None:
        yield f"the array: is held by {gc.get_referrers(array())!r:.500}"
    try:
        buffer.extend(b"more")
    except BufferError as error:
        yield f"the buffer: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    sys.setswitchinterval(1e-5)
    print(f"{options.threads} threads for {options.seconds:g} s, {'with' if GIL else 'without'} the GIL, "
          f"seed {options.seed}: {', '.join(TARGETS)}")

    shared, errors = Shared(), []
    for target in TARGETS:
        dlbridge.convert(shared.array, target)      # imports take their time
    done = [collections.Counter() for _ in range(options.threads)]
    until = time.monotonic() + options.seconds
    threads = [
        threading.Thread(target=work, args=(shared, options.seed + number, until, done[number], errors))
        for number in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wins, losses = next(shared.wins), next(shared.losses)
    if not errors:              # whose frames hold what they worked on
        errors += leftovers(shared)
    for name, count in sum(done, collections.Counter()).most_common():
        print(f"{count:10} {name}")
    print(f"{wins:10} capsules won, {losses} lost to another thread")
    for error in errors:
        print(*traceback.format_exception(error) if isinstance(error, BaseException) else [error], file=sys.stderr)
    return 1 if errors or not wins else 0


if __name__ == "__main__":
    sys.exit(main())
