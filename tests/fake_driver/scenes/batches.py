"""Batches that are uploaded ahead, in pieces."""

import gc

import numpy as np
from fake_driver.producers import driver
from fake_driver.scenes.staged import PIECE

from dlbridge.testing import unordered_releases

driver.make_current(0)


def batches(count, nbytes=PIECE):
    buffer = np.zeros(nbytes, "u1")         # filled again and again: uploads are copies
    for index in range(count):
        buffer[:] = index % 250
        yield {"x": buffer, "y": [buffer[::2]], "index": index}


def settled():
    gc.collect()
    calls = driver.log("MemAllocAsync"), driver.log("MemFreeAsync")
    assert len(calls[0]) == len(calls[1]) and unordered_releases() == 0
    races = driver.races()
    assert not races, races[:3]
