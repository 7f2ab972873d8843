"""A consumer that behaves as XLA does, for code that harness.run() runs: ``from fake_driver.xla import compute``.

It has a stream that nobody can ask for, which waits for the stream that an import comes from. An array releases memory
as soon as its last use is queued; from version 2 on, as XLA's newer client, when done() says that its uses are done.
``convert(x, "xla")`` gives its arrays, which are immutable. The version is that of the environment's XLA_VERSION; with
XLA_ORDER=C it takes C order alone.
"""

import math
import os
import sys
import types
from typing import Any

from fake_driver.control import driver
from fake_driver.producers import CUDA, Producer, delete, tensor_of

from dlbridge.libraries import library
from dlbridge.libraries.library import Fact, Library

driver.make_current(0)
compute = driver.value("StreamCreate", 1)         # it does not block with the legacy stream
__version__ = os.environ.get("XLA_VERSION", "1")
unused: list[object] = []                         # capsules that no array has any more


class Array:
    """Dense memory that was imported, or of its own; it is exported as four numbers."""

    def __init__(self, start: int, nbytes: int, capsule: object = None) -> None:
        self.start, self.nbytes, self.capsule = start, nbytes, capsule

    def __del__(self) -> None:
        if self.capsule is None:
            driver.call("MemFreeAsync", self.start, compute)
        elif __version__ == "1":
            delete(self.capsule)
        else:
            unused.append(self.capsule)

    def read(self) -> None:
        driver.use(self.start, compute, "read")

    def copy(self) -> "Array":
        made = driver.value("MemAllocAsync", self.nbytes, compute)
        driver.call("MemcpyDtoDAsync", made, self.start, self.nbytes, compute)
        return Array(made, self.nbytes)

    def __dlpack__(self, *, stream: int) -> object:
        event = driver.value("EventCreate", 2)
        driver.call("EventRecord", event, compute)
        driver.call("StreamWaitEvent", stream, event, 0)
        driver.call("EventDestroy", event)
        self.exported = Producer(self.start)
        return self.exported.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0


def done() -> None:
    """Everything that was queued is done, so what is not used any more is let go."""
    driver.call("StreamSynchronize", compute)
    while unused:
        delete(unused.pop())


def copied(array: Array, stream: int | None) -> Array:
    copy = array.copy()
    if stream is not None:
        copy.__dlpack__(stream=stream)
    return copy


def from_dlpack(producer: Any) -> Array:
    capsule = producer.__dlpack__(stream=compute)
    tensor = tensor_of(capsule)
    nbytes = math.prod(tensor.shape[: tensor.ndim]) * tensor.bits // 8
    return Array(tensor.data, nbytes, capsule)


def upload(module: Any, array: Any, index: int | None) -> Array:
    """The library's own copy of an ndarray, which waits."""
    global uploads
    uploads += 1
    array = array.copy()
    start = driver.value("MemAllocAsync", array.nbytes, compute)
    driver.call("MemcpyHtoDAsync", start, array.ctypes.data, array.nbytes, compute)
    driver.call("StreamSynchronize", compute)
    return Array(start, array.nbytes)


uploads = 0         # how many there were
found = library.files()
sys.modules["dlbridge.libraries.xla"] = types.SimpleNamespace(LIBRARY=Library(      # type: ignore[assignment]
    name="xla", module="fake_driver.xla", delivery="importer", importer="from_dlpack", array_types=("Array",),
    lacks=(
        Fact("WRITABLE", "as JAX's", "has immutable arrays"), Fact("HOST", "as of a GPU", "has none"),
        *(Fact(strides, "as JAX's") for strides in ("NEGATIVE_STRIDES", "ZERO_STRIDES", "ANY_STRIDES")),
        *([Fact("ANY_ORDER", "as JAX's before 0.8")] if os.environ.get("XLA_ORDER") == "C" else [])),
    dtypes=(Fact(("bool", "uint8", "int32", "float32"), "as JAX's without x64"),),
    device_alignment=Fact(16, "as JAX's"),
    uploads=("cuda",), uploader=upload, keeps_imports=Fact(True, "as JAX's", since="2"),
    copier=Fact(copied, "as JAX's", "has streams that nobody can ask for")))
library.files = lambda: found | {"xla"}
