"""A producer that gives its memory out again at once, as JAX does."""

from fake_driver.producers import Producer, driver

driver.make_current(0)
free = [driver.allocate(0, 16) for _ in range(12)]
own = driver.value("StreamCreate", 1)           # nobody can ask for it


class Array(Producer):
    def __init__(self, value):
        super().__init__(free.pop())
        driver.use(self.tensor.data, own, "write")
        driver.write(self.tensor.data, bytes([value]) * 16)

    def __dlpack__(self, *, stream):
        event = driver.value("EventCreate", 2)
        driver.call("EventRecord", event, own)
        driver.call("StreamWaitEvent", stream, event, 0)
        driver.call("EventDestroy", event)
        return super().__dlpack__(stream=stream)

    def _delete(self, address):
        super()._delete(address)
        free.append(self.tensor.data)
