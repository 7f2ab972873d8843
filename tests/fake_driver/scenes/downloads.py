"""Downloads of a device's memory in pieces."""

from fake_driver.producers import Interface, Stream, driver
from fake_driver.scenes.staged import random

import dlbridge

driver.make_current(0)
producers = Stream(driver.stream())


def filled(nbytes):
    """Memory of a device, as an array, and what is in it."""
    start, content = driver.allocate(0, nbytes), random.bytes(nbytes)
    driver.write(start, content)
    return Interface(start, (nbytes,), "|u1", stream=producers.handle), content


def down(source, **keywords):
    return dlbridge.convert(source, "numpy", device="cpu", **keywords).tobytes()


def copies():
    return len(driver.log("MemcpyDtoHAsync"))
