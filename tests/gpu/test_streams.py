"""The ``stream`` keyword: the standard's integers, and every library's own objects."""

import numpy as np
import pytest
from gpu.libraries import Described, sample

import dlbridge

pytestmark = pytest.mark.gpu


class CudaStream:
    """A stream by the protocol alone."""

    def __init__(self, handle):
        self.handle_number = handle

    def __cuda_stream__(self):
        return 0, self.handle_number


# By name: what gives a stream that torch and CuPy are to read on.
STREAMS = {
    "legacy": lambda library: 1,
    "per thread": lambda library: 2,
    "no order": lambda library: -1,
    "torch": lambda library: library("torch").new_stream(),
    "torch's default": lambda library: library("torch").legacy_stream(),
    "CuPy": lambda library: library("cupy").new_stream(),
    "CuPy's default": lambda library: library("cupy").legacy_stream(),
    "Numba": lambda library: library("numba").new_stream(),
    "Numba's default": lambda library: library("numba").module.default_stream(),
    "Numba's legacy default": lambda library: library("numba").legacy_stream(),
    "the protocol": lambda library: CudaStream(library("torch").new_stream().cuda_stream),
    "a handle": lambda library: library("torch").new_stream().cuda_stream,
}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("source", ["cupy", "numba", "torch"])
def test_stream_is_taken(source, stream, library):
    producer, consumer = library(source), library("torch" if source != "torch" else "cupy")
    array = producer.array(sample("float32"))
    received = dlbridge.convert(array, consumer.name, stream=STREAMS[stream](library))
    assert np.array_equal(consumer.values(received), sample("float32"))


@pytest.mark.parametrize("stream", [0, -2, 1 << 64])
def test_stream_is_refused(stream, library):
    array = library("cupy").array(sample("float32"))
    library("torch")
    with pytest.raises(dlbridge.DeviceError, match="stream"):
        dlbridge.convert(array, "torch", stream=stream)


@pytest.mark.parametrize("stream", [None, 1, -1])
def test_tensor_exports_for_a_stream(stream, library):
    cupy = library("cupy")
    tensor = dlbridge.asdlpack(cupy.array(sample("float32")))
    capsule = tensor.__dlpack__(stream=stream, max_version=(1, 0))
    received = cupy.module.from_dlpack(capsule)
    assert received.data.ptr == tensor.data_ptr
    assert np.array_equal(cupy.values(received), sample("float32"))


def test_stream_0_of_an_interface_is_refused(library):
    """The protocol forbids it."""
    array = library("cupy").array(sample("float32"))
    library("torch")
    described = Described(array, array.__cuda_array_interface__ | {"stream": 0})
    with pytest.raises(dlbridge.DLBridgeError, match="stream"):
        dlbridge.convert(described, "torch")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_of_the_interface(version, library):
    cupy, torch = library("cupy"), library("torch")
    array = cupy.array(sample("float32"))
    interface = array.__cuda_array_interface__ | {"version": version}
    if version < 3:
        del interface["stream"]
    received = dlbridge.convert(Described(array, interface), "torch")
    assert torch.pointer(received) == cupy.pointer(array)
    assert np.array_equal(torch.values(received), sample("float32"))
