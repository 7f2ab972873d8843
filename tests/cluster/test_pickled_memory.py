"""The memory that pickling takes, of a Tensor beside an ndarray's in the same run."""

import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
from support import memory
from support.pipes import receive_and_report

import dlbridge

NBYTES = 64 << 20               # above the largest threshold of malloc, so that each block is mapped by itself
CLOSE = 0.2 * NBYTES            # what is imported, and pages on the way, are less; one copy more would be more


def arrays() -> dict[str, Any]:
    """An ndarray and a Tensor of the same size, with memory of their own."""
    return {"ndarray": np.ones(NBYTES // 4, "float32"), "Tensor": dlbridge.asdlpack(np.ones(NBYTES // 4, "float32"))}


def in_band(protocol: int, array: Any) -> tuple[int, int]:
    text, sending = memory.growth(pickle.dumps, array, protocol)
    del array
    return sending, memory.growth(pickle.loads, text)[1]


def out_of_band(array: Any) -> tuple[int, int]:
    buffers: list[pickle.PickleBuffer] = []
    text, sending = memory.growth(lambda: pickle.dumps(array, 5, buffer_callback=buffers.append))
    return sending, memory.growth(lambda: pickle.loads(text, buffers=buffers))[1]


def through_a_pipe(array: Any) -> tuple[int, int]:
    """The growth here, and that of a process which receives the array."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=receive_and_report, args=(theirs,))
    process.start()
    theirs.close()
    assert ours.recv() == "ready"
    _, sending = memory.growth(ours.send, array)
    receiving = ours.recv()
    process.join()
    return sending, receiving


@pytest.mark.parametrize(("way", "copies"), [
    (lambda array: in_band(4, array), (2, 1)),
    (lambda array: in_band(5, array), (1, 1)),
    (out_of_band, (0, 0)),
    (through_a_pipe, (2, 2)),
], ids=["protocol 4", "protocol 5", "out of band", "a pipe"])
def test_no_more_than_an_ndarray_takes(way, copies):
    way(np.ones(16))            # what is imported and opened once
    grown = {name: memory.typical(way, array) for name, array in arrays().items()}
    print(grown)
    for theirs, ours, most in zip(grown["ndarray"], grown["Tensor"], copies, strict=True):
        assert ours <= theirs + CLOSE
        assert ours <= most * NBYTES + CLOSE


def test_shared_memory_takes_nothing_more():
    through_a_pipe(dlbridge.shared(np.ones(16)))
    sending, receiving = memory.typical(through_a_pipe, dlbridge.shared(np.ones(NBYTES // 4, "float32")))
    assert max(sending, receiving) <= CLOSE
