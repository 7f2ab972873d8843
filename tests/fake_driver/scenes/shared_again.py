"""Memory that is written again as soon as XLA has been given it."""

from fake_driver.producers import Interface, Stream, driver
from fake_driver.xla import Array

import dlbridge

start, first = driver.allocate(0, 16), Stream(driver.value("StreamCreate", 1))
source = dlbridge.asdlpack(Interface(start, stream=first.handle), stream=first)


def loop(**keywords):
    for _ in range(4):
        driver.use(start, first.handle, "write")
        array = dlbridge.convert(source, "xla", **keywords)
        assert type(array) is Array
        array.read()
        del array
