"""The hand-offs of one thread, of every kind."""

import sys

from fake_driver.producers import CUDA, ROCM, Interface, Producer, Stream, delete, driver

import dlbridge

for device in 0, 1:
    driver.make_current(device)
kind = ROCM if driver.hip else CUDA
starts = [driver.allocate(device, 16) for device in (0, 1)]


class Work:
    """The hand-offs of one thread, from streams and to streams of its own."""

    def __init__(self):
        self.first, self.then = ([Stream(driver.stream(device)) for device in (0, 1)] for _ in range(2))
        self.sources = [
            Interface(start, stream=1) for start, first in zip(starts, self.first, strict=True)]
        self.producers = [Producer(start, (kind, device)) for device, start in enumerate(starts)]

    def __call__(self, times):
        for index in range(times):
            device = index % 2
            source, producer, first, then = (
                each[device] for each in (self.sources, self.producers, self.first, self.then))
            dlbridge.asdlpack(source, stream=then)                          # ordered both ways
            dlbridge.asdlpack(source, stream=1)                             # in order as it is
            dlbridge.asdlpack(source, stream=-1)
            dlbridge.asdlpack(producer, stream=then)
            capsule = dlbridge.asdlpack(source, stream=first).__dlpack__(stream=then)
            delete(capsule) if index % 3 else None
            if index % 16 == 0:
                dlbridge.asdlpack(source, stream=then, copy=True)
                dlbridge.convert(source, "numpy", device="cpu", stream=then)

    def references(self):
        return [sys.getrefcount(each) for group in vars(self).values() for each in group]
