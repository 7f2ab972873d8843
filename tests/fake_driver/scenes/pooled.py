"""A producer that gives its block back on its own stream, at once, and what is done with it."""

from fake_driver.producers import CUDA, ROCM, Producer, Stream, delete, driver, tensor_of

import dlbridge

driver.make_current(0)
own, then = Stream(driver.stream()), Stream(driver.stream())


class Pooled(Producer):
    """It gives its block back on its own stream, at once."""

    def __dlpack__(self, *, stream):
        event = driver.value("EventCreate", 2)
        driver.call("EventRecord", event, own.handle)
        driver.call("StreamWaitEvent", stream, event, 0)
        driver.call("EventDestroy", event)
        return super().__dlpack__(stream=stream)

    def _delete(self, address):
        super()._delete(address)
        driver.call("MemFreeAsync", self.tensor.data, own.handle)


def producer():
    start = driver.value("MemAllocAsync", 16, own.handle)
    driver.use(start, own.handle, "write")
    return Pooled(start, (ROCM if driver.hip else CUDA, 0))


def used(made, stream):
    """What a consumer of the memory does."""
    driver.use(made.data_ptr, stream, "read")


def lend(stream):
    capsule = dlbridge.asdlpack(producer(), stream=stream).__dlpack__(stream=then)
    driver.use(tensor_of(capsule).data, then.handle, "read")
    delete(capsule)


ways = (
    lambda: used(dlbridge.asdlpack(producer(), stream=then), then.handle),
    lambda: lend(then),
    lambda: lend(None),
    lambda: dlbridge.asdlpack(producer(), copy=True),
    lambda: dlbridge.asdlpack(producer(), stream=then, copy=True),
)
