"""Objects that hand on the attributes of an array: what is known of the array holds, whatever stands in front of it."""

import weakref

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import wrapt
from support.exporters import Proxy
from support.optional import of, params

import dlbridge

pytestmark = pytest.mark.quick


class Attribute:
    """Has the bound method of an array as an attribute of its own."""

    def __init__(self, array):
        self.array = array
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


@of("wrapt")
def by_wrapt(array):
    return wrapt.ObjectProxy(array)


@of("wrapt")
def twice(array):
    return Proxy(wrapt.ObjectProxy(array))


PROXIES = params([Proxy, Attribute, weakref.proxy, by_wrapt, twice])


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("proxy", PROXIES)
def test_immutable_memory_is_not_written_through_a_proxy(proxy):
    array = jnp.arange(3.0)
    dlbridge.convert(proxy(array), "torch").zero_()
    assert not dlbridge.convert(proxy(array), "numpy").flags.writeable
    assert dlbridge.asdlpack(proxy(array)).readonly
    np.testing.assert_array_equal(array, [0, 1, 2])


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("readonly", ["copy", "share"])
def test_a_proxy_of_a_tensor_becomes_a_tensor(proxy, readonly):
    tensor = dlbridge.asdlpack(np.arange(3))
    for found in dlbridge.asdlpack(proxy(tensor), readonly=readonly), dlbridge.convert(proxy(tensor), "dlbridge"):
        assert type(found) is dlbridge.Tensor
        assert found.data_ptr == tensor.data_ptr


@pytest.mark.needs("torch")
@pytest.mark.parametrize("proxy", PROXIES)
def test_lazy_bits_are_seen_through_a_proxy(proxy):
    negated = torch._neg_view(torch.arange(3.0))
    array = dlbridge.convert(proxy(negated), "numpy")
    np.testing.assert_array_equal(array, [0, -1, -2])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("proxy", PROXIES)
def test_a_parameter_is_seen_through_a_proxy(proxy):
    parameter = torch.nn.Parameter(torch.arange(3.0))
    with pytest.raises(dlbridge.ConversionError, match="requires_grad"):
        dlbridge.convert(proxy(parameter), "numpy")
    array = dlbridge.convert(proxy(parameter), "numpy", detach=True)
    parameter.data = torch.zeros(1)
    assert not array.base.resizable()
    np.testing.assert_array_equal(array, [0, 1, 2])


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_mask_is_seen_through_a_proxy(proxy):
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    with pytest.raises(dlbridge.UnsupportedError, match="mask"):
        dlbridge.convert(proxy(masked), "numpy")


@pytest.mark.parametrize("proxy", PROXIES)
def test_the_array_outlives_its_proxy(proxy):
    array = np.arange(3.0)
    converted = dlbridge.convert(proxy(array), "dlbridge")
    assert converted.owner is array
    address = array.ctypes.data
    del array
    view = np.asarray(converted)
    assert view.ctypes.data == address
    np.testing.assert_array_equal(view, [0, 1, 2])


def test_a_weak_proxy_of_an_interface_keeps_its_object():
    class Interface:
        def __init__(self, array):
            self.array = array
            self.__array_interface__ = array.__array_interface__

    interface = Interface(np.arange(3.0))
    alive = weakref.ref(interface)
    converted = dlbridge.convert(weakref.proxy(interface), "numpy")
    del interface
    assert alive() is not None
    np.testing.assert_array_equal(converted, [0, 1, 2])
    del converted
    assert alive() is None


def test_a_dead_proxy_is_refused_by_python():
    with pytest.raises(ReferenceError):
        dlbridge.convert(weakref.proxy(type("Gone", (), {})()), "numpy")


def test_proxies_that_lead_to_each_other_end():
    class Endless:
        @property
        def __dlpack__(self):
            return Endless().give

        def give(self):
            raise AssertionError

    with pytest.raises((RecursionError, AssertionError, dlbridge.DLBridgeError)):
        dlbridge.convert(Proxy(Endless()), "numpy")


@pytest.mark.needs("jax")
def test_explain_and_batches_see_through_proxies_too():
    array = jnp.arange(3.0)
    assert dlbridge.explain(Proxy(array), "numpy").readonly
    assert not dlbridge.convert_tree([Proxy(array)], "numpy")[0].flags.writeable
