"""A producer whose memory was handed to a stream, and let go."""

from fake_driver.producers import CUDA, ROCM, Producer, Stream, driver

import dlbridge

driver.make_current(0)
kind, legacy = (ROCM, 0) if driver.hip else (CUDA, 1)
first, then = Stream(driver.stream()), Stream(driver.stream())
start = driver.allocate(0, 16)


def lent(stream=then):
    """A producer of memory that was handed to a stream, and let go."""
    made = Producer(start, (kind, 0))
    dlbridge.asdlpack(made, stream=stream)
    return made
