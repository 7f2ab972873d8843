"""What these tests run on without a GPU: Numba on the fake driver, and two small libraries of its own.

``GPU_FAKE=1 bash tests/gpu/run.sh`` uses it, so that the scripts are known to work. The fake driver does all work at
once: it sees a race by its clocks, not by values.
"""

import contextlib
import itertools
import math
import sys
import threading
import types

import numpy as np
from fake_driver.control import driver
from fake_driver.producers import Stream, delete
from gpu import libraries

from dlbridge.libraries import library
from dlbridge.libraries.library import Arrays, Fact, Library

driver.make_current(0)
from fake_driver import xla  # noqa: E402, F401  (it makes a stream)

LEGACY = Stream(1)


class Thread(threading.local):
    def __init__(self):
        self.streams = [LEGACY]         # of ``pool``, the current one last
        driver.make_current(0)


thread = Thread()


def current():
    return thread.streams[-1]


def soon():
    """A question that is answered by yes from the second time on, as if a stream were busy before."""
    answers = itertools.chain([False], itertools.repeat(True))
    return lambda: next(answers)


class Numba(libraries.Numba):
    """Without kernels, and with streams that do not block with the legacy one, as torch's."""

    def new_stream(self):
        stream = super().new_stream()
        stream.handle = type(stream.handle)(driver.value("StreamCreate", 1))
        return stream

    def fill(self, array, value, stream):
        write(self.pointer(array), array.size, value, int(stream))

    def spin(self, stream):
        pass

    def mark(self, stream):
        return soon()


class Array:
    """An array of ``pool``."""

    def __init__(self, interface, owner):
        self.__cuda_array_interface__, self.owner = interface, owner
        self.shape, self.dtype = interface["shape"], np.dtype(interface["typestr"])
        self.size = math.prod(self.shape)


class Block:
    """Memory that goes back in the order of the stream that it was allocated on."""

    bytes_in_use = 0

    def __init__(self, nbytes, device=0):
        self.stream, self.nbytes = current(), nbytes
        Block.bytes_in_use += nbytes
        if device:              # the streams are of the first device
            self.start = driver.allocate(device, max(1, nbytes))
        else:
            self.start = driver.value("MemAllocAsync", max(1, nbytes), self.stream.handle)

    def __del__(self, call=driver.call):
        call("MemFreeAsync", self.start, self.stream.handle)
        type(self).bytes_in_use -= self.nbytes


def described(start, shape, typestr, strides=None):
    return {"shape": tuple(shape), "typestr": typestr, "data": (start, False), "strides": strides, "version": 3,
            "stream": current().handle}


class Pool:
    """A library with a current stream and an allocator in its order, as CuPy is."""

    name = "pool"
    module = None
    layouts = tuple(libraries.LAYOUTS)

    def array(self, values, device=0):
        block = Block(values.nbytes, device)
        driver.write(block.start, np.ascontiguousarray(values).tobytes())
        return Array(described(block.start, values.shape, typestr(values.dtype)), block)

    def make(self, values, layout):
        base, view = self.array(values), libraries.viewed(values, layout)
        offset = view.__array_interface__["data"][0] - values.__array_interface__["data"][0] if view.size else 0
        return Array(described(self.pointer(base) + offset, view.shape, typestr(view.dtype), view.strides), base)

    def values(self, array):
        return libraries.described_values(array.__cuda_array_interface__, array.dtype)

    def pointer(self, array):
        return array.__cuda_array_interface__["data"][0]

    def device_index(self, array):
        return driver.value("PointerGetAttribute", 9, self.pointer(array))

    def empty(self, count, stream):
        with self.current(stream):
            block = Block(4 * count)
            return Array(described(block.start, (count,), "<i4"), block)

    def fill(self, array, value, stream):
        write(self.pointer(array), array.size, value, stream.handle)

    def copied(self, array, stream):
        copy = self.empty(array.size, stream)
        driver.call("MemcpyDtoDAsync", self.pointer(copy), self.pointer(array), 4 * array.size, stream.handle)
        return copy

    def new_stream(self):
        current()               # the first use in a thread makes the context its own
        return Stream(driver.value("StreamCreate", 1))

    def adopt(self, stream, handle):
        return stream

    def legacy_stream(self):
        return LEGACY

    @contextlib.contextmanager
    def current(self, stream):
        thread.streams.append(stream)
        try:
            yield
        finally:
            thread.streams.pop()

    def handle(self, stream):
        return stream.handle

    def current_handle(self):
        return current().handle

    def current_device(self):
        return driver.current_device()

    def spin(self, stream):
        pass

    def mark(self, stream):
        return soon()

    def allocated(self):
        return Block.bytes_in_use


class Xla:
    """A library whose streams nobody can ask for, as JAX is."""

    name = "xla"

    def used_later(self, array):
        array.read()
        return np.frombuffer(driver.read(array.start, 16), np.int32)


def typestr(dtype):
    """Nobody can name bfloat16 or float8 by it."""
    if str(dtype) in libraries.ML_DTYPES:
        raise libraries.Lacks(dtype)
    return dtype.str


def write(start, size, value, stream):
    driver.write(start, np.full(size, value, np.int32).tobytes())
    driver.use(start, stream, "write")


def from_dlpack(producer):
    """The importer of ``pool``."""
    capsule = producer.__dlpack__(stream=current().handle)
    return Array(producer.__cuda_array_interface__, Taken(capsule))


class Taken:
    def __init__(self, capsule):
        self.capsule = capsule

    def __del__(self):
        delete(self.capsule)


pool = Pool()
found = library.files()
module = types.ModuleType("pool")
module.__dict__.update(Array=Array, from_dlpack=from_dlpack)
Array.__module__ = "pool"
sys.modules["pool"] = module
sys.modules["dlbridge.libraries.pool"] = types.SimpleNamespace(LIBRARY=Library(      # type: ignore[assignment]
    name="pool", delivery="importer", importer="from_dlpack", array_types=("Array",),
    arrays=(Arrays(
        "Array", stream_object=Fact(lambda array, index: current(), "as CuPy", "names its current stream"),
        rearranged=Fact(lambda array, dtype: pool.array(pool.values(array)), "as CuPy")),),
    uploads=("cuda",),
    lacks=(Fact("HOST", "as CuPy", "has none"), Fact("ODD_STRIDES", "as CuPy", "counts them in elements"))))
library.files = lambda: found | {"pool"}
