"""Batches that a thread uploads ahead: values, the streams of their consumer, and memory that comes again."""

import os

import numpy as np
import pytest
from gpu.libraries import cases, races, synchronize

import dlbridge

pytestmark = pytest.mark.gpu

ROUNDS = int(os.environ.get("DLBRIDGE_GPU_ROUNDS", "200"))
COUNT = 1 << 16
# The pool of the fake driver takes no memory of the host.
LIBRARIES = [name for name, in cases(("torch",), ("cupy",), ("numba",), ("jax",)) if name != "pool"]


def refilled(count, size):
    """A source that fills one buffer again and again."""
    buffer = np.zeros(size, np.int32)
    for index in range(count):
        buffer[:] = index
        yield {"x": buffer, "index": index}


@pytest.mark.parametrize("size", [COUNT, 50 * COUNT])
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_slow_consumer_reads_what_belongs_to_its_batch(library, name, size):
    library = library(name)
    stream = None if name in ("jax", "numba") else library.new_stream()
    copies = []
    found = dlbridge.prefetch(refilled(min(ROUNDS, 40), size), name, device="cuda")
    for batch in found if stream is None else on_stream(found, library, stream):
        if stream is None:
            assert (library.values(batch["x"]) == batch["index"]).all()
            continue
        with library.current(stream):
            if batch["index"] % 4 == 0:
                library.spin(stream)
            copies.append((batch["index"], library.copied(batch["x"], stream)))
        batch["x"] = None           # it goes while the copy waits
    synchronize()
    assert [index for index, copy in copies if not (library.values(copy) == index).all()] == []
    assert not races()


def on_stream(found, library, stream):
    while True:
        with library.current(stream):
            try:
                batch = next(found)
            except StopIteration:
                return
        yield batch


def test_arrays_that_are_on_the_device_go_on_in_order(library):
    torch, cupy = library("torch"), library("cupy")
    writing, reading = cupy.new_stream(), torch.new_stream()

    def source():
        for value in range(ROUNDS // 4):
            array = cupy.empty(COUNT, writing)
            cupy.spin(writing)
            cupy.fill(array, value, writing)
            with cupy.current(writing):
                yield array

    with torch.current(reading):
        for value, tensor in enumerate(dlbridge.prefetch(source(), "torch")):
            copy = torch.copied(tensor, reading)
            assert (torch.values(copy) == value).all()
