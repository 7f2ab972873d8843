"""Uploads by Numba in pieces."""

from fake_driver.producers import driver
from fake_driver.scenes import staged  # noqa: F401 (for its small pieces)
from numba import cuda

import dlbridge

with cuda.gpus[0]:
    pass


def up(source):
    return dlbridge.convert(source, "numba", device="cuda:0")


def copies():
    return len(driver.log("MemcpyHtoDAsync"))
