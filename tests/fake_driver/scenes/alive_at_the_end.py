"""Results whose release is to be ordered, and which may outlive everything."""

from fake_driver.producers import LoudInterface, Stream, driver

import dlbridge

driver.make_current(0)
start = driver.allocate(0, 16)


def make(copy=None, kind=LoudInterface):
    """Two results to be ordered, the one when the other is gone."""
    tensor = dlbridge.asdlpack(kind(start, stream=1), stream=Stream(driver.stream()), copy=copy)
    made = tensor, tensor.__dlpack__(stream=Stream(driver.stream()))
    driver.clear()
    return made
