"""Device memory that two processes have, and what the second one does with it."""

import gc
import multiprocessing
import sys

import numpy as np
from fake_driver.producers import Interface, driver
from support.sharing import descriptors

import dlbridge

GRANULE = 1 << 21
BASE = np.arange(GRANULE // 2 + 24, dtype="float32").reshape(8, -1)         # a little more than two granules

COUNTED = "allocations", "pages", "ranges", "pushed"


def on_device(array=BASE, stream=None, **entries):
    """An array of the fake device, which is ready on a stream, or at once."""
    start = driver.filled(0, array.tobytes(), "device")
    if stream is not None:
        driver.use(start, stream, "write")
        entries["stream"] = stream
    return Interface(start, array.shape, array.dtype.str, **entries)


def values(tensor):
    """What is in its memory, once whatever was queued is done."""
    span = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)) + 1
    flat = np.frombuffer(driver.read(tensor.data_ptr, span * tensor.dtype.itemsize), tensor.dtype)
    return np.lib.stride_tricks.as_strided(
        flat, tensor.shape, [stride * tensor.dtype.itemsize for stride in tensor.strides])


def write(tensor, value):
    driver.write(tensor.data_ptr, np.full(tensor.shape, value, tensor.dtype).tobytes())


def alive():
    """What of the driver's, and how many descriptors of memory, are alive."""
    gc.collect()
    return [driver.alive(what) for what in COUNTED] + [descriptors()]


# ---- in the second process -------------------------------------------------------------------------------------------

def serve(connection):
    """Say what is in each Tensor that comes, and write to it."""
    while (tensor := connection.recv()) is not None:
        connection.send((tensor.device, tensor.readonly, values(tensor).tolist()))
        if not tensor.readonly:
            write(tensor, 7)
        connection.send(None)


def make_and_end(connection):
    made = dlbridge.shared_empty(BASE.shape, "float32", device="cuda:1")
    write(made, 5)
    connection.send(made)


def make_and_wait(connection):
    make_and_end(connection)
    connection.recv()           # until it is killed


# ---- in the first one ------------------------------------------------------------------------------------------------

def spawned(target, *arguments):
    """A connection to a process, and the process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    vars(sys.modules["__main__"]).pop("__file__", None)         # it would run in the other process, too
    process = context.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()              # so that it is seen if the process ends
    return ours, process
