"""Inside the capture of a CUDA graph: on one stream as ever, across streams only without order, and then said so."""

import contextlib

import numpy as np
import pytest
from gpu import driver

import dlbridge

pytestmark = pytest.mark.gpu

COUNT = 1024
PRODUCERS = ("cupy", "numba")


@contextlib.contextmanager
def cupy_capture(stream):
    """Capture what CuPy does on a stream; the list that is given holds the graph afterwards."""
    graphs = []
    with stream:
        stream.begin_capture()
        try:
            yield graphs
        finally:
            graphs.append(stream.end_capture())


def source_on(producer, stream):
    """Make an array of ones whose work is on a stream: there, and done."""
    array = producer.empty(COUNT, stream)
    producer.fill(array, 1, stream)
    driver.synchronize()
    return array


def warm(consumer, source, out):
    """First calls load kernels and take memory, which no capture allows."""
    out.fill_(0) if consumer.name == "torch" else out.fill(0)
    received = dlbridge.convert(source, consumer.name, stream=-1)
    _ = received + 1
    driver.synchronize()


# Where the producer's work is, beside the stream that torch captures.
WRITING = {
    "the same stream": lambda torch, producer, capturing: producer.adopt(capturing, torch.handle(capturing)),
    "another stream": lambda torch, producer, capturing: producer.new_stream(),
    "the default stream": lambda torch, producer, capturing: producer.legacy_stream(),
}


def prepared_torch(library, producer_name, where):
    torch, producer = library("torch"), library(producer_name)
    capturing = torch.new_stream()
    writing = WRITING[where](torch, producer, capturing)
    source = source_on(producer, writing)
    out = torch.empty(COUNT, capturing)
    warm(torch, source, out)
    return torch, producer, capturing, writing, source, out


def check_replay(producer, source, writing, replay, values):
    """A replay reads what is in the source then, not what was there at the capture."""
    for value in (5, 6):
        producer.fill(source, value, writing)
        driver.synchronize()
        replay()
        driver.synchronize()
        assert np.array_equal(values(), np.full(COUNT, value + 1, np.int32))


@pytest.mark.parametrize("where", WRITING)
@pytest.mark.parametrize("source_name", PRODUCERS)
def test_torch_captures(source_name, where, library):
    torch, producer, capturing, writing, source, out = prepared_torch(library, source_name, where)
    keywords = {} if where == "the same stream" else {"stream": -1}
    graph = torch.module.cuda.CUDAGraph()
    with torch.module.cuda.graph(graph, stream=capturing), producer.current(writing):
        received = dlbridge.convert(source, "torch", **keywords)
        torch.module.add(received, 1, out=out)
    check_replay(producer, source, writing, graph.replay, lambda: torch.values(out))


@pytest.mark.parametrize("where", [where for where in WRITING if where != "the same stream"])
@pytest.mark.parametrize("source_name", PRODUCERS)
def test_torch_captures_and_another_stream_is_refused(source_name, where, library):
    torch, producer, capturing, writing, source, out = prepared_torch(library, source_name, where)
    graph = torch.module.cuda.CUDAGraph()
    with torch.module.cuda.graph(graph, stream=capturing), producer.current(writing):
        with pytest.raises(dlbridge.DeviceError, match="stream=-1"):
            dlbridge.convert(source, "torch")
        assert driver.is_capturing(torch.handle(capturing)), "the refusal ended the capture"
        out.fill_(7)
    graph.replay()
    driver.synchronize()
    assert np.array_equal(torch.values(out), np.full(COUNT, 7, np.int32))


def prepared_cupy(library, same_stream):
    """torch is the producer, and CuPy's stream is captured."""
    cupy, torch = library("cupy"), library("torch")
    capturing = cupy.new_stream()
    writing = torch.adopt(capturing, cupy.handle(capturing)) if same_stream else torch.new_stream()
    source = source_on(torch, writing)
    out = cupy.empty(COUNT, capturing)
    warm(cupy, source, out)
    with capturing:
        cupy.module.add(out, 1, out=out)        # loads the kernel
    driver.synchronize()
    return cupy, torch, capturing, writing, source, out


@pytest.mark.parametrize("same_stream", [True, False], ids=["one stream", "two streams, stream=-1"])
def test_cupy_captures(same_stream, library):
    cupy, torch, capturing, writing, source, out = prepared_cupy(library, same_stream)
    keywords = {} if same_stream else {"stream": -1}
    with torch.current(writing), cupy_capture(capturing) as graphs:
        received = dlbridge.convert(source, "cupy", **keywords)
        cupy.module.add(received, 1, out=out)
    check_replay(torch, source, writing, lambda: graphs[0].launch(stream=capturing), lambda: cupy.values(out))


def test_cupy_captures_and_another_stream_is_refused(library):
    cupy, torch, capturing, writing, source, out = prepared_cupy(library, same_stream=False)
    with torch.current(writing), cupy_capture(capturing) as graphs:
        with pytest.raises(dlbridge.DeviceError, match="stream=-1"):
            dlbridge.convert(source, "cupy")
        assert driver.is_capturing(cupy.handle(capturing)), "the refusal ended the capture"
        out.fill(7)
    graphs[0].launch(stream=capturing)
    driver.synchronize()
    assert np.array_equal(cupy.values(out), np.full(COUNT, 7, np.int32))


def test_a_blocking_stream_is_captured(library):
    """Then the default stream may not even be asked whether it is captured."""
    cupy, torch = library("cupy"), library("torch")
    capturing = cupy.module.cuda.Stream()
    source = source_on(torch, torch.legacy_stream())
    out = cupy.empty(COUNT, capturing)
    warm(cupy, source, out)
    with cupy_capture(capturing) as graphs:
        with pytest.raises(dlbridge.DeviceError, match="stream=-1"):
            dlbridge.convert(source, "cupy")
        assert driver.is_capturing(cupy.handle(capturing)), "the refusal ended the capture"
        out.fill(7)
    graphs[0].launch(stream=capturing)
    driver.synchronize()
    assert np.array_equal(cupy.values(out), np.full(COUNT, 7, np.int32))


def test_producer_captures_and_another_stream_is_refused(library):
    """An event of a captured stream would draw the consumer's stream into the capture."""
    cupy, torch = library("cupy"), library("torch")
    capturing, reading = cupy.new_stream(), torch.new_stream()
    source = source_on(cupy, capturing)
    with torch.current(reading), cupy_capture(capturing) as graphs:
        with pytest.raises(dlbridge.DeviceError, match="stream=-1"):
            dlbridge.convert(source, "torch")
        assert not driver.is_capturing(torch.handle(reading)), "the consumer's stream was drawn into the capture"
        source.fill(7)
    graphs[0].launch(stream=capturing)
    driver.synchronize()
    assert np.array_equal(cupy.values(source), np.full(COUNT, 7, np.int32))


def test_release_while_capturing(library):
    """The last reference may go inside a capture: nothing is waited for there, and the capture lives on."""
    cupy, torch = library("cupy"), library("torch")
    capturing, reading = cupy.new_stream(), torch.new_stream()
    source = source_on(cupy, capturing)
    with torch.current(reading):
        received = dlbridge.convert(source, "torch", stream=reading)
    driver.synchronize()
    with cupy_capture(capturing) as graphs:
        source.fill(3)
        del received
        assert driver.is_capturing(cupy.handle(capturing))
    graphs[0].launch(stream=capturing)
    driver.synchronize()
    assert np.array_equal(cupy.values(source), np.full(COUNT, 3, np.int32))
