"""What the documentation of other DLPack modules promises, with dlbridge in their place."""

import re
import sys

import numpy as np
import pytest
import torch

import dlbridge
from dlbridge.testing import abi
from dlbridge.testing.producers import capsule_name

# ---- torch.utils.dlpack: to_dlpack(tensor) gives a capsule, from_dlpack(obj) a tensor over the same memory -----------

@pytest.mark.needs("torch")
def test_tensor_and_its_tensor_share_memory():
    first = torch.arange(4)
    second = dlbridge.convert(first, "torch")
    third = torch.from_dlpack(dlbridge.asdlpack(first))
    assert first.data_ptr() == second.data_ptr() == third.data_ptr()
    first[:2] = -1
    assert second.tolist() == third.tolist() == [-1, -1, 2, 3]
    third[3] = 7
    assert first.tolist() == second.tolist() == [-1, -1, 2, 7]


@pytest.mark.needs("torch")
def test_three_tensors_share_memory_through_capsules():
    first = torch.zeros(2, 3)
    second = torch.utils.dlpack.from_dlpack(dlbridge.to_dlpack(first))
    third = dlbridge.convert(torch.utils.dlpack.to_dlpack(second), "torch")
    assert first.data_ptr() == second.data_ptr() == third.data_ptr()
    third += 1
    assert first.sum() == second.sum() == 6


@pytest.mark.needs("torch")
def test_capsule_is_shown_as_one_and_is_used_once():
    tensor = torch.ones(3)
    capsule = dlbridge.to_dlpack(tensor)
    assert re.match(r'<capsule object "dltensor" at 0x[0-9a-f]+>', repr(capsule))
    made = dlbridge.from_dlpack(capsule)
    assert '"used_dltensor"' in repr(capsule)
    with pytest.raises(dlbridge.ConversionError, match="consumed already"):
        dlbridge.from_dlpack(capsule)
    assert torch.from_dlpack(made).tolist() == [1, 1, 1]


@pytest.mark.needs("torch")
def test_capsule_outlives_the_tensor():
    capsule = dlbridge.to_dlpack(torch.full((2,), 5.0))
    assert torch.from_dlpack(capsule).tolist() == [5, 5]


# ---- paddle.utils.dlpack: a tensor of one library into another and back, versions by max_version ---------------------

@pytest.mark.needs("torch")
def test_there_and_back():
    first = torch.tensor([[0.2, 0.3], [0.5, 0.9]])
    second = dlbridge.convert(dlbridge.to_dlpack(first), "numpy")
    third = dlbridge.convert(dlbridge.to_dlpack(second), "torch")
    assert torch.equal(first, third)
    assert first.data_ptr() == third.data_ptr()


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("max_version", "name"), [
    (None, abi.LEGACY_NAME), ((0, 8), abi.LEGACY_NAME), ((1, 0), abi.VERSIONED_NAME), ((1, 3), abi.VERSIONED_NAME),
    ((2, 0), abi.VERSIONED_NAME),
], ids=str)
def test_capsule_is_of_the_version_asked_for(max_version, name):
    capsule = dlbridge.to_dlpack(torch.zeros(2), max_version=max_version)
    assert capsule_name(capsule) == name
    assert dlbridge.asdlpack(dlbridge.to_dlpack(torch.zeros(2))).__dlpack_device__() == (1, 0)
    made = torch.from_dlpack(capsule)
    assert made.tolist() == [0, 0]
    assert capsule_name(capsule) == b"used_" + name


@pytest.mark.needs("torch")
def test_external_tensor_is_taken_by_its_protocol():
    """Anything with the two methods will do: no registration, no base class."""

    class External:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = np.arange(3.0)
    assert dlbridge.convert(External(array), "torch").data_ptr() == array.ctypes.data
    assert dlbridge.from_dlpack(External(array), device="cpu", copy=False).data_ptr == array.ctypes.data


def test_device_and_copy_of_the_standard():
    array = np.arange(3.0)
    assert dlbridge.from_dlpack(array, copy=True).data_ptr != array.ctypes.data
    assert dlbridge.from_dlpack(array, device="cpu").data_ptr == array.ctypes.data
    with pytest.raises(dlbridge.DeviceError):
        dlbridge.from_dlpack(array, device=(2, 0))


# ---- pydlpack: asdlpack(obj) around whatever has memory --------------------------------------------------------------

@pytest.mark.needs("torch")
def test_bytes_become_a_tensor():
    tensor = torch.from_dlpack(dlbridge.asdlpack(b"Hello!"))
    assert bytes(tensor.tolist()) == b"Hello!"


@pytest.mark.needs("torch")
def test_object_with_an_array_interface_alone():
    class Interface:
        def __init__(self, array):
            self.array = array

        @property
        def __array_interface__(self):
            return self.array.__array_interface__

    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    tensor = torch.from_dlpack(dlbridge.asdlpack(Interface(array)))
    tensor[0, 0] = 42
    assert array[0, 0] == 42
    assert tensor.dtype is torch.int16


@pytest.mark.needs("torch")
def test_wrapped_object_is_used_any_number_of_times():
    wrapped = dlbridge.asdlpack(bytearray(b"abc"))
    arrays = [np.from_dlpack(wrapped) for _ in range(3)] + [torch.from_dlpack(wrapped) for _ in range(3)]
    del wrapped
    arrays[0][0] = ord("x")
    assert [int(array[0]) for array in arrays] == [ord("x")] * 6


def test_wrapped_object_tells_what_it_is():
    wrapped = dlbridge.asdlpack(np.zeros((2, 3), np.float32))
    assert (wrapped.shape, wrapped.strides, wrapped.dtype, wrapped.device) == ((2, 3), (3, 1), "float32", "cpu")
    assert wrapped.nbytes == 24


def test_wrapping_keeps_the_object_alive_and_lets_it_go():
    array = np.zeros(3)
    before = sys.getrefcount(array)
    wrapped = dlbridge.asdlpack(array)
    assert sys.getrefcount(array) == before + 1
    assert wrapped.owner is array
    del wrapped
    assert sys.getrefcount(array) == before
