"""What a hand-over leaves alone: the current device and streams, the allocators; and GPUs by their index."""

import pytest
from gpu import driver
from gpu.libraries import CLASSES, sample

import dlbridge

pytestmark = pytest.mark.gpu

PAIRS = [(source, target) for source in CLASSES for target in CLASSES if source != target]


def state(*libraries):
    return {
        "context": driver.current_context(),
        **{library.name: (library.current_device(), library.current_handle()) for library in libraries},
    }


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_current_device_and_streams_stay(source, target, library):
    producer, consumer = library(source), library(target)
    writing, reading = producer.new_stream(), consumer.new_stream()
    array = producer.array(sample("float32"))
    with producer.current(writing), consumer.current(reading):
        before = state(producer, consumer)
        for keywords in ({}, {"copy": True}, {"stream": 1}, *([{"stream": -1}] if source != "jax" else [])):
            dlbridge.convert(array, target, **keywords)
            assert state(producer, consumer) == before, keywords
        with pytest.raises(dlbridge.DLBridgeError):
            dlbridge.convert(array, target, device="cuda:99")
        assert state(producer, consumer) == before


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] != "jax"])
def test_nothing_is_allocated(source, target, library):
    """Sharing takes no memory of the device: not from the libraries' allocators, not from the driver."""
    producer, consumer = library(source), library(target)
    array = producer.array(sample("float32", (1024,)))
    reading = consumer.new_stream()
    with consumer.current(reading):
        # As many as are counted below, since what the driver keeps for events grows with the first.
        held = [dlbridge.convert(array, target, copy=False, readonly="share") for _ in range(1000)]
        del held
        driver.synchronize()
        before = (driver.free_memory(), producer.allocated(), consumer.allocated())
        held = [dlbridge.convert(array, target, copy=False, readonly="share") for _ in range(1000)]
        driver.synchronize()
        during = (driver.free_memory(), producer.allocated(), consumer.allocated())
    assert len(held) == 1000
    assert during == before


@pytest.fixture
def second_gpu():
    count = driver.device_count()
    if count < 2:
        pytest.skip(f"needs two GPUs, and there is {count}")
    return 1


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_device_by_index(source, target, library, second_gpu):
    """Memory on the second GPU, while the first is current, is shared where it is."""
    producer, consumer = library(source), library(target)
    values = sample("float32")
    array = producer.array(values, second_gpu)
    before = state(producer, consumer)
    received = dlbridge.convert(array, target, readonly="share")
    assert state(producer, consumer) == before
    assert consumer.device_index(received) == second_gpu
    assert consumer.pointer(received) == producer.pointer(array)
    assert dlbridge.asdlpack(array).device == f"cuda:{second_gpu}"


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_move_between_gpus_is_refused(source, target, library, second_gpu):
    producer, consumer = library(source), library(target)
    array = producer.array(sample("float32"))
    before = state(producer, consumer)
    with pytest.raises(dlbridge.DeviceError, match="with the library that made it"):
        dlbridge.convert(array, target, device=f"cuda:{second_gpu}")
    assert state(producer, consumer) == before


@pytest.mark.parametrize("source", CLASSES)
def test_device_is_named(source, library):
    array = library(source).array(sample("float32"))
    tensor = dlbridge.asdlpack(array)
    assert tensor.device == "cuda:0"
    assert tensor.__dlpack_device__() == (2, 0)
    assert tensor.data_ptr == library(source).pointer(array)
