"""A consumer never reads before the producer's work is done: a slow kernel, a hand-over at once, a read at once."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gpu.libraries import cases, races

import dlbridge

pytestmark = pytest.mark.gpu

ROUNDS = int(os.environ.get("DLBRIDGE_GPU_ROUNDS", "200"))
COUNT = 1 << 16
PAIRS = cases(
    ("cupy", "torch"), ("numba", "torch"), ("torch", "cupy"), ("cupy", "jax"), ("torch", "jax"), ("numba", "cupy"),
    ("cupy", "numba"), ("torch", "numba"),
)
# How the consumer's stream is named: not at all, as the library's own object, as an integer.
NAMED = {
    "current": lambda library, stream: None,
    "object": lambda library, stream: stream,
    "handle": lambda library, stream: library.handle(stream),
}


def early_reads(producer, consumer, rounds, keywords, stop=False, writing=None, reading=None):
    """In how many rounds the consumer saw other values than the producer's last; with ``stop`` the first is enough."""
    writing = producer.new_stream() if writing is None else writing
    reading = reading_stream(consumer) if reading is None else reading
    source = producer.empty(COUNT, writing)
    early = 0
    # One round more, unseen: first calls load kernels and take memory, which waits for the device by itself.
    for value in range(rounds + 1):
        producer.spin(writing)
        producer.fill(source, value, writing)
        with producer.current(writing), consumer.current(reading):
            received = dlbridge.convert(source, consumer.name, **{"readonly": "share"} | keywords(reading))
            copy = consumer.copied(received, reading)
        right = np.array_equal(settled(consumer, copy, reading), np.full(COUNT, value, np.int32))
        if races() or (value and not right):
            early += 1
            if stop:
                break
        del received
        wait_for(producer, writing)
    return early


def reading_stream(consumer):
    """Numba has no current stream but the default one."""
    return consumer.legacy_stream() if consumer.name == "numba" else consumer.new_stream()


def settled(library, array, stream):
    """Values after everything is done."""
    if library.name != "jax":
        wait_for(library, stream)
    return library.values(array)


def wait_for(library, stream):
    done = library.mark(stream)
    while not done():
        pass


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_consumer_waits(source, target, library):
    producer, consumer = library(source), library(target)
    assert early_reads(producer, consumer, ROUNDS, lambda stream: {}) == 0


@pytest.mark.parametrize(("source", "target"), cases(("cupy", "torch"), ("numba", "torch"), ("torch", "cupy")))
def test_default_stream_is_waited_for(source, target, library):
    """Where nobody made a stream: work is on the default one, and Numba's arrays name none at all."""
    producer, consumer = library(source), library(target)
    writing = 0 if source == "numba" else producer.legacy_stream()
    rounds = max(1, ROUNDS // 10)
    assert early_reads(producer, consumer, rounds, lambda stream: {}, writing=writing) == 0


def test_numbas_default_stream_is_waited_for_by_a_threads_own(library):
    numba = library("numba")
    own = numba.module.per_thread_default_stream()
    rounds = max(1, ROUNDS // 10)
    assert early_reads(numba, numba, rounds, lambda stream: {"stream": stream}, writing=0, reading=own) == 0


@pytest.mark.parametrize("named", [name for name in NAMED if name != "current"])
@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[1] != "jax"])
def test_consumer_waits_on_the_stream_that_is_named(source, target, named, library):
    producer, consumer = library(source), library(target)
    keywords = NAMED[named]
    assert early_reads(producer, consumer, max(1, ROUNDS // 10), lambda s: {"stream": keywords(consumer, s)}) == 0


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_without_order_the_race_is_seen(source, target, library):
    """Or the tests above prove nothing."""
    producer, consumer = library(source), library(target)
    early = early_reads(producer, consumer, ROUNDS, lambda stream: {"stream": -1}, stop=True)
    assert early, f"{ROUNDS} rounds of {source} -> {target} without order, and no early read: this proves nothing"


@pytest.mark.parametrize(("source", "target"), cases(("cupy", "torch"), ("torch", "cupy")))
def test_consumers_wait_in_every_thread(source, target, library):
    """Current streams are a thread's own."""
    producer, consumer = library(source), library(target)
    rounds = max(1, ROUNDS // 10)
    with ThreadPoolExecutor(4) as pool:
        early = [pool.submit(early_reads, producer, consumer, rounds, lambda stream: {}) for _ in range(4)]
        assert [each.result() for each in early] == [0] * 4


@pytest.mark.parametrize("source", ["cupy", "numba", "torch"])
def test_copy_to_the_host_waits(source, library):
    producer = library(source)
    stream = producer.new_stream()
    array = producer.empty(COUNT, stream)
    for value in range(max(1, ROUNDS // 10)):
        producer.spin(stream)
        producer.fill(array, value, stream)
        with producer.current(stream):
            host = dlbridge.convert(array, "numpy", device="cpu")
        assert np.array_equal(host, np.full(COUNT, value, np.int32)), value


@pytest.mark.parametrize("source", ["cupy", "numba", "torch"])
def test_copy_on_the_device_waits(source, library):
    """``copy=True`` reads on some stream, too."""
    producer, consumer = library(source), library("torch" if source != "torch" else "cupy")
    copies = early_reads(producer, consumer, max(1, ROUNDS // 10), lambda stream: {"copy": True})
    assert copies == 0


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_convert_does_not_wait_itself(source, target, library):
    """It returns while the producer is still busy: the order is kept on the device."""
    producer, consumer = library(source), library(target)
    writing, reading = producer.new_stream(), reading_stream(consumer)
    array = producer.empty(COUNT, writing)
    busy = []
    for _ in range(5):
        producer.fill(array, 1, writing)
        wait_for(producer, writing)
        producer.spin(writing)
        done = producer.mark(writing)
        with producer.current(writing), consumer.current(reading):
            received = dlbridge.convert(array, target, readonly="share")
        busy.append(not done())
        del received
    # The first call loads what is loaded once.
    assert all(busy[1:]), f"convert waited: whether the producer was busy afterwards: {busy}"
