"""dpnp on SYCL's CPU device: memory that is no host memory for anybody else, on a machine without a GPU."""

import dpnp
import numpy as np
import pytest

import dlbridge
from dlbridge.libraries.dpnp import LIBRARY
from dlbridge.testing.producers import Producer

ONEAPI = 14


def numbers(dtype="float32"):
    return (np.arange(12).reshape(3, 4) % 2 if dtype == "bool" else np.arange(12).reshape(3, 4)).astype(dtype)


def pointer(array):
    return array.get_array()._pointer


def test_where_it_is():
    tensor = dlbridge.asdlpack(dpnp.asarray(numbers()))
    assert (tensor.device, tensor.__dlpack_device__()) == ("oneapi:0", (ONEAPI, 0))
    assert not hasattr(tensor, "__array_interface__")
    with pytest.raises(BufferError):
        memoryview(tensor)


@pytest.mark.parametrize("dtype", LIBRARY.dtypes[0].value)
def test_to_the_host_and_back(dtype):
    source = numbers(dtype)
    array = dlbridge.convert(source, "dpnp", device="oneapi")
    assert isinstance(array, dpnp.ndarray)
    assert array.dtype == dtype
    back = dlbridge.convert(array, "numpy", device="cpu")
    assert (back.dtype, back.tolist()) == (dtype, source.tolist())
    assert dlbridge.convert(source, array).tolist() == source.tolist()      # like the array, device and all


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.T, lambda x: x[:, ::2], lambda x: x[1:]])
def test_shared_on_the_device(layout):
    array = layout(dpnp.asarray(numbers()))
    tensor = dlbridge.asdlpack(array)
    view = dlbridge.convert(tensor, "dpnp", copy=False)
    assert (pointer(view), view.shape, view.strides) == (pointer(array), array.shape, array.strides)
    view += 1
    assert array.tolist() == layout(numbers() + 1).tolist()
    assert dlbridge.convert(array, "dpnp") is array


def test_no_memory_changes_its_device_unasked():
    array = dpnp.asarray(numbers())
    for target in ("numpy", "memoryview"):
        with pytest.raises(dlbridge.DeviceError, match=r"oneapi:0: .* \(move it to the CPU with the library that"):
            dlbridge.convert(array, target)
        plan = dlbridge.explain(array, target)
        assert (plan.action, plan.device) == ("refuse", "oneapi:0")
        assert dlbridge.convert(dpnp.asnumpy(array), target).tolist() == numbers().tolist()     # what the hint says
    with pytest.raises(dlbridge.DeviceError, match=r'pass device="oneapi"'):
        dlbridge.convert(numbers(), "dpnp")


def test_what_dlbridge_cannot_do_there():
    array = dpnp.asarray(numbers())
    with pytest.raises(dlbridge.DeviceError, match="cannot be made on oneapi:0"):
        dlbridge.convert(array, "dpnp", copy=True)
    with pytest.raises(dlbridge.DeviceError, match="cannot be made on oneapi:0"):
        dlbridge.convert(dlbridge.asdlpack(array[::-1]), "dpnp")


def test_a_capsule():
    array = dpnp.asarray(numbers())
    for version in (None, (1, 3)):
        capsule = dlbridge.to_dlpack(array, max_version=version)
        assert pointer(dlbridge.convert(capsule, "dpnp")) == pointer(array)


def test_memory_is_held():
    view = dlbridge.convert(dlbridge.asdlpack(dpnp.asarray(numbers())), "dpnp")
    others = [dpnp.asarray(numbers() + 50) for _ in range(10)]
    assert view.tolist() == numbers().tolist()
    del others


@pytest.mark.parametrize("lacks", ["NEGATIVE_STRIDES", "READ_ONLY"])
def test_quirks_stop_a_conversion(lacks):
    array = numbers()[::-1] if lacks == "NEGATIVE_STRIDES" else numbers()
    source = Producer(array, device_type=ONEAPI, flags=int(lacks == "READ_ONLY"))
    with pytest.raises(dlbridge.CopyRequiredError, match=r"\(.+\)$"):
        dlbridge.convert(source, "dpnp", copy=False)
