"""Read-only memory, the host and the device, pinned and managed memory, and the faces of a Tensor."""


import numpy as np
import pytest
from gpu import driver
from gpu.libraries import CLASSES, DTYPES, ML_DTYPES, Described, Lacks, sample
from support.children import in_child

import dlbridge

pytestmark = pytest.mark.gpu

WRITABLE = ("torch", "cupy", "numba")


def read_only(library):
    """Give arrays of two kinds that nobody may write to: a flag says so, or the library's word."""
    cupy = library("cupy")
    array = cupy.array(sample("float32"))
    interface = array.__cuda_array_interface__
    flagged = Described(array, interface | {"data": (interface["data"][0], True)})
    return flagged, cupy.pointer(array)


@pytest.mark.parametrize("target", WRITABLE)
def test_read_only_flag(target, library):
    source, address = read_only(library)
    consumer = library(target)
    copied = dlbridge.convert(source, target)
    assert consumer.pointer(copied) != address
    assert np.array_equal(consumer.values(copied), sample("float32"))
    assert consumer.pointer(dlbridge.convert(source, target, readonly="share")) == address
    with pytest.raises(dlbridge.ConversionError):
        dlbridge.convert(source, target, readonly="error")
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(source, target, copy=False)


@pytest.mark.parametrize("target", WRITABLE)
def test_jax_arrays_are_read_only(target, library):
    jax, consumer = library("jax"), library(target)
    array = jax.array(sample("float32"))
    assert consumer.pointer(dlbridge.convert(array, target)) != jax.pointer(array)
    assert consumer.pointer(dlbridge.convert(array, target, readonly="share")) == jax.pointer(array)


@pytest.mark.parametrize("source", WRITABLE)
def test_jax_gets_writable_memory_on_a_promise_alone(source, library):
    producer, jax = library(source), library("jax")
    array = producer.array(sample("float32"))
    assert jax.pointer(dlbridge.convert(array, "jax")) != producer.pointer(array)
    assert jax.pointer(dlbridge.convert(array, "jax", readonly="share")) == producer.pointer(array)
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(array, "jax", copy=False)


def test_read_only_is_told(library):
    source, address = read_only(library)
    tensor = dlbridge.asdlpack(source)
    assert tensor.readonly
    assert tensor.__cuda_array_interface__["data"] == (address, True)
    jax = library("jax")
    assert jax.pointer(dlbridge.convert(tensor, "jax")) == address


@pytest.mark.parametrize("source", CLASSES)
def test_device_memory_stays_on_the_device(source, library):
    array = library(source).array(sample("float32"))
    with pytest.raises(dlbridge.DeviceError, match='device="cpu"'):
        dlbridge.convert(array, "numpy")
    with pytest.raises(dlbridge.DeviceError, match='device="cpu"'):
        memoryview(dlbridge.convert(array, "memoryview"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("source", CLASSES)
def test_to_the_host(source, dtype, library):
    producer = library(source)
    values = sample(dtype)
    for layout in producer.layouts:
        try:
            array = producer.make(values, layout)
        except Lacks:
            pytest.skip(f"{source} has no {dtype}")
        try:
            host = dlbridge.convert(array, "numpy", device="cpu")
        except dlbridge.ConversionError:
            # __cuda_array_interface__ does not tell these from other bytes.
            assert source == "numba", layout
            assert dtype in ML_DTYPES
            continue
        assert host.dtype == values.dtype
        assert host.tobytes() == producer.values(array).tobytes(), layout


@pytest.mark.parametrize("target", ["torch", "cupy", "numba", "jax"])
def test_to_the_device(target, library):
    consumer = library(target)
    for values in (sample("float32"), sample("int64")[::2, 1:], sample("bool").T, sample("float64")[::-1]):
        received = dlbridge.convert(values, target, device="cuda:0")
        assert consumer.device_index(received) == 0
        assert np.array_equal(consumer.values(received), values)


def test_rows_that_numba_repeats(library):
    numba = library("numba")
    base = numba.array(sample("int32", (8,)))
    interface = base.__cuda_array_interface__ | {"shape": (5, 8), "strides": (0, 4)}
    array = numba.module.as_cuda_array(Described(base, interface))
    assert array.strides == (0, 4)
    # Numba's interface says that it is compact (numba-cuda 0.30.4).
    assert dlbridge.asdlpack(array).strides == (0, 1), "it would be read beyond its end"


def test_host_memory_stays_on_the_host(library):
    library("cupy")
    with pytest.raises(dlbridge.DeviceError, match="device="):
        dlbridge.convert(sample("float32"), "cupy")


def test_pinned_memory_is_host_memory(library):
    torch = library("torch").module
    pinned = torch.arange(48, dtype=torch.float32).pin_memory()
    host = dlbridge.convert(pinned, "numpy")
    assert host.__array_interface__["data"][0] == pinned.data_ptr()
    assert np.array_equal(host, np.arange(48, dtype=np.float32))


def test_pinned_memory_is_pinned_in_jax_too(library):
    jax, cupy = library("jax"), library("cupy")
    if tuple(map(int, jax.module.__version__.split(".")[:2])) < (0, 11):
        pytest.skip("JAX takes it from 0.11 on")
    memory = cupy.module.cuda.alloc_pinned_memory(256)
    values = np.frombuffer(memory, np.float32, 64)
    values[:] = np.arange(64)
    source = Described(memory, {"shape": (64,), "typestr": "<f4", "data": (memory.ptr, False), "version": 2})
    assert dlbridge.asdlpack(source).device == "cuda_host:0"
    received = dlbridge.convert(source, "jax", readonly="share")
    assert received.sharding.memory_kind == "pinned_host"
    assert jax.pointer(received) == memory.ptr
    assert np.array_equal(jax.values(received), values)
    again = dlbridge.asdlpack(received)
    assert (again.device, again.data_ptr, again.readonly) == ("cuda_host:0", memory.ptr, True)
    assert np.array_equal(dlbridge.convert(received, "numpy"), values)
    assert dlbridge.convert(received, "torch", readonly="share").data_ptr() == memory.ptr
    assert cupy.pointer(dlbridge.convert(received, "cupy", readonly="share")) == memory.ptr
    # A copy is of the host, as without a GPU; so is what is asked for there.
    for keywords in {}, {"copy": True}, {"device": "cpu", "readonly": "share"}:
        received = dlbridge.convert(source, "jax", **keywords)
        assert received.device.platform == "cpu"
        assert np.array_equal(jax.values(received), values)


def test_managed_memory(library):
    cupy = library("cupy")
    module = cupy.module
    if not module.cuda.runtime.deviceGetAttribute(module.cuda.runtime.cudaDevAttrConcurrentManagedAccess, 0):
        pytest.skip("the device does not allow concurrent access to managed memory")
    memory = module.cuda.malloc_managed(4096)
    array = module.ndarray((16,), np.int32, memory)
    array.fill(5)
    host = dlbridge.convert(array, "numpy")
    assert np.array_equal(host, np.full(16, 5, np.int32))
    torch = library("torch")
    received = dlbridge.convert(array, "torch")
    assert np.array_equal(torch.values(received), np.full(16, 5, np.int32))


@pytest.mark.parametrize("source", CLASSES)
def test_empty_tensors_reach_every_library(source, library):
    empty = library(source).array(np.empty((0, 3), np.float32))
    tensor = dlbridge.asdlpack(empty)
    assert library("cupy").module.asarray(tensor).shape == (0, 3)
    assert library("numba").module.as_cuda_array(tensor).shape == (0, 3)
    for target in CLASSES:
        assert tuple(dlbridge.convert(empty, target, readonly="share").shape) == (0, 3)


def test_a_buffer_of_cuda_core_is_bytes(library):
    library("torch")
    core = pytest.importorskip("cuda.core")
    device = core.Device(0)
    device.set_current()
    buffer = device.allocate(64, stream=device.default_stream)
    tensor = dlbridge.convert(buffer, "torch", dtype="float32", shape=(4, 4))
    assert (tensor.data_ptr(), tuple(tensor.shape), str(tensor.dtype)) == (int(buffer.handle), (4, 4), "torch.float32")


def test_what_has_the_interface_alone_in_numbas_package(library):
    numba = library("numba")
    foreign = type("ForeignArray", (Described,), {"__module__": "numba.cuda.testing"})
    array = numba.array(sample("float32"))
    assert dlbridge.asdlpack(foreign(array, array.__cuda_array_interface__)).data_ptr == numba.pointer(array)


@pytest.mark.parametrize("target", ["torch", "cupy", "numba", "jax"])
def test_a_device_that_is_not_there_is_named_beside_those_that_are(target, library):
    library(target)
    with pytest.raises(dlbridge.DeviceError, match=r"device cuda:63: is not there: this machine has cuda:0"):
        dlbridge.convert(sample("float32"), target, device="cuda:63")


def test_exhausted_memory_is_one_error(library):
    torch, free = library("torch").module, driver.free_memory()
    large = torch.empty(free // 2 + (1 << 30), dtype=torch.uint8, device="cuda")
    for target in "cupy", "torch", "numba":
        library(target)
        with pytest.raises(dlbridge.DeviceMemoryError, match=r"bytes were wanted, and \d+ are free") as raised:
            dlbridge.convert(large, target, copy=True)
        assert isinstance(raised.value, MemoryError)
    with pytest.raises(dlbridge.DeviceMemoryError, match=r"torch: device cuda:0: \d+ bytes were wanted"):
        dlbridge.convert(large.view(torch.bool), "cupy", copy=True)
    del large
    torch.cuda.empty_cache()


def test_interface_of_a_tensor(library):
    cupy = library("cupy")
    array = cupy.make(sample("float32"), "every second")
    tensor = dlbridge.asdlpack(array)
    interface = tensor.__cuda_array_interface__
    assert interface["version"] == 3
    assert interface["data"] == (cupy.pointer(array), False)
    assert tuple(interface["shape"]) == array.shape
    assert tuple(interface["strides"]) == array.strides
    assert interface["typestr"] == "<f4"
    assert interface.get("stream", 1) != 0, "the protocol forbids 0"
    assert not hasattr(tensor, "__array_interface__")
    assert not hasattr(tensor, "__array_struct__")
    with pytest.raises(BufferError):
        memoryview(tensor)


# What every library itself makes of a Tensor.
IMPORTERS = {
    "torch.from_dlpack": ("torch", lambda torch, x: torch.from_dlpack(x)),
    "torch.as_tensor": ("torch", lambda torch, x: torch.as_tensor(x, device="cuda")),
    "cupy.from_dlpack": ("cupy", lambda cupy, x: cupy.from_dlpack(x)),
    "cupy.asarray": ("cupy", lambda cupy, x: cupy.asarray(x)),
    "numba.cuda.as_cuda_array": ("numba", lambda cuda, x: cuda.as_cuda_array(x)),
    "jax.dlpack.from_dlpack": ("jax", lambda jax, x: jax.dlpack.from_dlpack(x)),
}


@pytest.mark.parametrize("importer", IMPORTERS)
def test_importers_take_a_tensor(importer, library):
    name, take = IMPORTERS[importer]
    consumer = library(name)
    producer = library("cupy" if name != "cupy" else "torch")
    tensor = dlbridge.asdlpack(producer.array(sample("float32")))
    received = take(consumer.module, tensor)
    assert consumer.pointer(received) == tensor.data_ptr
    assert np.array_equal(consumer.values(received), sample("float32"))


@in_child(warnings="default")
def use_jax_without_order(target):
    import jax
    import numpy as np

    import dlbridge

    array = jax.device_put(np.arange(48, dtype=np.float32), jax.devices("cuda")[0]) + 1
    received = dlbridge.convert(array, target, stream=-1, readonly="share")
    assert dlbridge.explain(array, target, stream=-1, readonly="share").action == "share"
    array.block_until_ready()           # there is no order, so the host waits
    host = received.cpu().numpy() if target == "torch" else received.get()
    assert np.array_equal(host, np.arange(1, 49, dtype=np.float32)), host


@pytest.mark.parametrize("target", ["torch", "cupy"])
def test_jax_without_order(target, library):
    """JAX itself would wait on the stream -1, whatever that is: in a child, which may die (jaxlib's dlpack.cc)."""
    library("jax")
    library(target)
    use_jax_without_order(target=target)


@pytest.mark.parametrize("source", [source for source in CLASSES if source != "jax"])
def test_explain_agrees(source, library):
    producer = library(source)
    target = "torch" if source != "torch" else "cupy"
    consumer = library(target)
    for layout in producer.layouts:
        if layout == "empty":
            continue                # no memory, so neither the same nor another
        array = producer.make(sample("float32"), layout)
        text = str(dlbridge.explain(array, target))
        shared = consumer.pointer(dlbridge.convert(array, target)) == producer.pointer(array)
        assert ("share" if shared else "copy") in text.splitlines()[0], (layout, text)
