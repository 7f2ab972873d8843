"""A library that has kernels, as CuPy has, for code that harness.run() runs: ``from fake_driver.kernels import Array``.

It has a current stream, and makes compact copies there. ``convert(x, "kernels")`` gives its arrays.
"""

import sys
import types
from typing import Any

import numpy as np
from fake_driver.control import driver
from fake_driver.producers import Stream

from dlbridge.libraries import library
from dlbridge.libraries.library import Arrays, Fact, Library, TooWide

driver.make_current(0)
current = Stream(driver.value("StreamCreate", 1))
__version__ = "1"


class Array:
    """An array on the first device."""

    def __init__(self, values: np.ndarray, typestr: str = "", start: int = 0, owner: object = None) -> None:
        base = values if values.base is None else values.base
        self.owner = owner
        if not start:
            self.owner = Memory(base.nbytes)
            driver.write(self.owner.start, base.tobytes("A"))
            driver.use(self.owner.start, current.handle, "write")
            start = self.owner.start + values.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        self.__cuda_array_interface__ = {
            "shape": values.shape, "typestr": typestr or values.dtype.str, "data": (start, False),
            "strides": values.strides, "version": 3, "stream": current.handle}

    @property
    def start(self) -> int:
        return self.__cuda_array_interface__["data"][0]


class Memory:
    def __init__(self, nbytes: int) -> None:
        self.start = driver.value("MemAllocAsync", nbytes, current.handle)

    def __del__(self, call: Any = driver.call, stream: int = current.handle) -> None:
        call("MemFreeAsync", self.start, stream)


def values_of(array: Any) -> np.ndarray:
    """What an interface describes, as NumPy has it."""
    found = array.__cuda_array_interface__
    dtype, shape, strides = np.dtype(found["typestr"]), found["shape"], found["strides"]
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    before = -sum(step for step in steps if step < 0)
    nbytes = before + sum(step for step in steps if step > 0) + dtype.itemsize
    return np.ndarray(shape, dtype, driver.read(found["data"][0] - before, nbytes), before, strides)


def rearranged(array: Any, dtype: str | None) -> Array:
    driver.use(array.start, current.handle, "read")
    values = values_of(array)
    if values.dtype == bool:
        return Array(np.ascontiguousarray(values.view("u1") != 0))
    made = np.array(values, dtype, order="C")
    if dtype and not np.array_equal(made, values):
        raise TooWide
    return Array(made)


def from_dlpack(producer: Any) -> Array:
    capsule = producer.__dlpack__(stream=current.handle)
    found = producer.__cuda_array_interface__
    values = np.lib.stride_tricks.as_strided(       # a description alone, whose elements nobody reads
        np.empty(1, found["typestr"]), found["shape"], found["strides"])
    return Array(values, start=found["data"][0], owner=(producer, capsule))


def spoil(answer: Any) -> None:
    """Have the kernels raise an error from now on."""
    def failing(array: Any, dtype: str | None) -> Array:
        raise answer

    failing.__module__ = __name__
    sys.modules["dlbridge.libraries.kernels"].LIBRARY = made(failing)       # type: ignore[attr-defined]


def made(function: Any) -> Library:
    return Library(
        name="kernels", module="fake_driver.kernels", roots=("kernels",), delivery="importer",
        importer="from_dlpack", array_types=("Array",), uploads=("cuda",),
        arrays=(Arrays("Array", rearranged=Fact(function, "as CuPy's"),
                       stream_object=Fact(lambda array, index: current, "as CuPy's")),),
        lacks=(Fact("HOST", "as CuPy", "has none"), Fact("ODD_STRIDES", "as CuPy", "counts them in elements"),
               Fact("SWAPPED_BYTES", "as CuPy", "has none")))


Array.__module__ = "kernels"
found = library.files()
sys.modules["kernels"] = sys.modules[__name__]
sys.modules["dlbridge.libraries.kernels"] = types.SimpleNamespace(LIBRARY=made(rearranged))     # type: ignore[assignment]
library.files = lambda: found | {"kernels"}
library.library_of.cache_clear()
