"""A library whose arrays are told to order nothing, as CuPy's from 14 on, and whose current stream is known."""

import sys
import types

from fake_driver.producers import Interface, Producer, Stream, driver

from dlbridge.libraries import library
from dlbridge.libraries.library import Arrays, Fact, Library

own, asked = Stream(driver.stream()), []


class Array(Producer):
    strides, itemsize, has_dtype, has_interface = (4,), 4, True, True

    def __dlpack__(self, *, stream, max_version):
        self.told.append(stream)
        if not self.has_dtype:
            raise BufferError("the dtype is not supported")
        return self.capsule()

    @property
    def __cuda_array_interface__(self):
        if not self.has_interface:
            raise AttributeError("__cuda_array_interface__")
        return Interface(self.tensor.data, (2,), stream=1, strides=self.strides).entries


def current(array, index):
    asked.append(index)
    return own


Array.__module__ = "unordered"
sys.modules["unordered"] = types.ModuleType("unordered")
sys.modules["dlbridge.libraries.unordered"] = types.SimpleNamespace(LIBRARY=Library(name="unordered", arrays=(Arrays(
    "*", preferred=Fact("cuda_array_interface", "of this test"), stream_object=Fact(current, "of this test"),
    unordered_export=Fact(True, "of this test")),)))
found = library.files()
library.files = lambda: found | {"unordered"}
library.library_of.cache_clear()
