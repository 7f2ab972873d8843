"""Memory of the GPU that two processes share."""

import multiprocessing
import os

import numpy as np
import pytest
from gpu import sharing

import dlbridge
from dlbridge._core.devices.cuda import memory_of_device

pytestmark = pytest.mark.gpu

WRITABLE = ("torch", "cupy", "numba")
COUNT = 1 << 20
HAND_OVERS = 50 * int(os.environ.get("DLBRIDGE_GPU_ROUNDS", "200"))
SLOW = 100          # before each of so many hand-overs the stream is kept busy


def spawned(target, *arguments):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    return ours, process


@pytest.mark.parametrize("name", WRITABLE)
def test_what_is_handed_over_is_there(name, library):
    consumer = library(name)
    ours, process = spawned(sharing.serve, name)
    frame, wrong = dlbridge.shared_empty(COUNT, "int32", device="cuda"), 0
    stream = consumer.new_stream()
    array = dlbridge.convert(frame, name, stream=stream)
    assert consumer.pointer(array) == frame.data_ptr
    for turn in range(1, HAND_OVERS + 1):
        if turn % SLOW == 0:
            consumer.spin(stream)
        consumer.fill(array, turn, stream)
        ours.send((frame, turn))
        wrong += ours.recv() + int((consumer.values(array) != -turn).sum())
    ours.send(None)
    process.join(60)
    assert process.exitcode == 0
    print(f"{wrong} wrong of {HAND_OVERS} hand-overs")
    assert wrong == 0


@pytest.mark.parametrize("name", WRITABLE)
def test_memory_outlives_its_sender(name, library):
    consumer = library(name)
    ours, process = spawned(sharing.give_and_wait, name, COUNT, 7)
    frame = ours.recv()
    process.kill()
    process.join()
    assert (consumer.values(dlbridge.convert(frame, name)) == 7).all()


@pytest.mark.parametrize("name", WRITABLE)
def test_arrays_of_libraries_are_copied_once(name, library):
    consumer = library(name)
    array = consumer.array(np.arange(COUNT, dtype="int32"))
    with dlbridge.watch() as copies:
        frame = dlbridge.shared(array)
    copy, = copies
    assert (copy.target, copy.nbytes) == ("shared memory", 4 * COUNT)
    assert (frame.device, frame.data_ptr != consumer.pointer(array)) == ("cuda:0", True)
    assert dlbridge.shared(frame) is frame
    assert np.array_equal(consumer.values(dlbridge.convert(frame, name)), np.arange(COUNT))


def test_all_of_it_is_given_back():
    def make():
        dlbridge.shared_empty(1 << 26, "uint8", device="cuda")

    make()
    before = memory_of_device(2, 0)
    for _ in range(100):
        make()
    assert memory_of_device(2, 0) >= before - (1 << 21)
