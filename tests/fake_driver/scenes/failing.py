"""What is done with memory of device 0, of which any call of the driver can fail; and what must then be as before."""

import sys

from fake_driver.producers import CUDA, ROCM, Interface, Producer, Stream, counts, driver

import dlbridge

driver.make_current(0)
driver.make_current(1)              # so that device 0's context must be pushed
start, managed = driver.filled(0, b"0123456789abcdef"), driver.allocate(0, 16, "managed")
first, then = Stream(driver.stream(0)), Stream(driver.stream(0))
producer = Producer(start, (ROCM if driver.hip else CUDA, 0))
source = Interface(start, stream=first.handle)


def state():
    return counts()[1:], [sys.getrefcount(each) for each in (source, producer, then)], driver.current_device()


def export(): return dlbridge.asdlpack(producer).__dlpack__(stream=then)
def order(): return dlbridge.asdlpack(source, stream=then)
def fetch(): return dlbridge.convert(source, "numpy", device="cpu")
def copy(): return dlbridge.asdlpack(source, copy=True)
def locate(): return dlbridge.asdlpack(Interface(managed))
