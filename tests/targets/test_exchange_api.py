"""The C exchange API of DLPack 1.3, called as a C library calls it: ours, torch's and cuda.core's."""

import ctypes
import gc
import sys

import ml_dtypes
import numpy as np
import pytest
from support.child import run_in_child

import dlbridge
from dlbridge.testing import abi
from dlbridge.testing.producers import Producer, capsule_name, capsule_pointer

pytestmark = pytest.mark.quick


def table_of(kind):
    return abi.DLPackExchangeAPI.from_address(capsule_pointer(kind.__dlpack_c_exchange_api__, abi.EXCHANGE_NAME))


TABLE = table_of(dlbridge.Tensor)
ERROR_SET = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_Occurred", ctypes.pythonapi))
Versioned = ctypes.POINTER(abi.DLManagedTensorVersioned)


def export(obj, table=TABLE):
    """The struct of an owning export; ctypes raises what the slot set."""
    out = Versioned()
    answer = table.managed_tensor_from_py_object_no_sync(id(obj), ctypes.byref(out))
    return answer, out


def as_object(address):
    """The object behind a new reference, which is taken over."""
    made = ctypes.cast(address, ctypes.py_object).value
    ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))(made)
    return made


def delete(struct):
    struct.contents.deleter(ctypes.addressof(struct.contents))


def test_table_is_found_on_the_type():
    capsule = dlbridge.Tensor.__dlpack_c_exchange_api__
    assert capsule_name(capsule) == abi.EXCHANGE_NAME
    assert (TABLE.version.major, TABLE.version.minor) == (1, 3) == dlbridge.DLPACK_VERSION
    assert TABLE.prev_api is None
    assert all(getattr(TABLE, name) for name, _ in abi.DLPackExchangeAPI._fields_[2:]), "only one slot may be NULL"
    assert ctypes.sizeof(abi.DLPackExchangeAPI) == 56


# ---- managed_tensor_from_py_object_no_sync ---------------------------------------------------------------------------

def test_export_owns():
    memory = bytearray(range(24))
    tensor = dlbridge.asdlpack(memory)
    answer, struct = export(tensor)
    assert answer == 0
    made = struct.contents
    assert (made.version.major, made.version.minor) == (1, 3)
    assert made.flags == 0
    assert made.dl_tensor.data + made.dl_tensor.byte_offset == tensor.data_ptr
    assert made.dl_tensor.shape[0] == 24
    assert made.dl_tensor.strides[0] == 1
    del tensor
    gc.collect()
    with pytest.raises(BufferError):
        memory.extend(b"more")
    delete(struct)
    memory.extend(b"more")


def test_export_flags_read_only_memory():
    _, struct = export(dlbridge.asdlpack(b"Hello!"))
    assert struct.contents.flags == abi.READ_ONLY
    delete(struct)


def test_export_counts_no_reference_too_many():
    tensor = dlbridge.asdlpack(np.zeros(3))
    before = sys.getrefcount(tensor)
    for _ in range(100):
        _, struct = export(tensor)
        delete(struct)
    assert sys.getrefcount(tensor) == before


@pytest.mark.parametrize("obj", [None, 3, np.zeros(3), dlbridge.Tensor], ids=lambda obj: type(obj).__name__)
def test_export_of_another_type(obj):
    def export_it():
        with pytest.raises(TypeError):
            export(obj)

    run_in_child(export_it).result()


# ---- managed_tensor_to_py_object_no_sync -----------------------------------------------------------------------------

def bring_in(producer):
    struct = producer.struct()
    out = ctypes.c_void_p()
    answer = TABLE.managed_tensor_to_py_object_no_sync(ctypes.pointer(struct), ctypes.byref(out))
    return answer, out.value


def test_import_steals_and_gives_a_new_reference():
    producer = Producer()
    answer, address = bring_in(producer)
    assert answer == 0
    tensor = as_object(address)
    assert type(tensor) is dlbridge.Tensor
    assert np.from_dlpack(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert producer.deleted == 0
    del tensor
    gc.collect()
    assert producer.deleted == 1


HOSTILE = {
    "ndim -1": ({"ndim": -1}, dlbridge.ConversionError),
    "shape NULL": ({"shape": None}, dlbridge.ConversionError),
    "data NULL": ({"data": None}, dlbridge.ConversionError),
    "extents overflow": ({"shape": (2**40, 2**40)}, dlbridge.ConversionError),
    "major version 2": ({"version": (2, 0)}, dlbridge.ConversionError),
    "major version 2, all else rubbish": (
        {"version": (2, 0), "ndim": 2**31 - 1, "shape": None, "strides": None}, dlbridge.ConversionError),
    "device type 99": ({"device_type": 99}, dlbridge.DeviceError),
    "dtype code 99": ({"code": 99}, dlbridge.ConversionError),
}


@pytest.mark.parametrize(("fields", "error"), HOSTILE.values(), ids=HOSTILE)
def test_import_steals_on_failure_too(fields, error):
    def bring_it_in():
        producer = Producer(**fields)
        with pytest.raises(error):
            bring_in(producer)
        return producer.deleted

    outcome = run_in_child(bring_it_in)
    assert outcome.result() == 1
    assert outcome.stderr == ""


def test_import_of_a_struct_without_a_deleter():
    producer = Producer(deleter=None)
    _, address = bring_in(producer)
    assert as_object(address).shape == (2, 3)


# ---- dltensor_from_py_object_no_sync ---------------------------------------------------------------------------------

def test_borrowed_struct():
    tensor = dlbridge.asdlpack(np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2])
    before = sys.getrefcount(tensor)
    out = abi.DLTensor()
    assert TABLE.dltensor_from_py_object_no_sync(id(tensor), ctypes.byref(out)) == 0
    assert out.data + out.byte_offset == tensor.data_ptr
    assert (out.shape[0], out.shape[1]) == tensor.shape
    assert (out.strides[0], out.strides[1]) == tensor.strides
    assert (out.dtype.code, out.dtype.bits, out.dtype.lanes) == (0, 16, 1)
    assert (out.device.device_type, out.device.device_id) == (abi.CPU, 0)
    assert sys.getrefcount(tensor) == before


def test_borrowed_struct_of_read_only_memory_is_refused():
    """It has no flags, so nobody could be told."""
    tensor = dlbridge.asdlpack(b"Hello!")
    with pytest.raises(dlbridge.ConversionError, match="read-only"):
        TABLE.dltensor_from_py_object_no_sync(id(tensor), ctypes.byref(abi.DLTensor()))


@pytest.mark.needs("ml_dtypes")
def test_borrowed_struct_of_padded_elements_is_refused():
    tensor = dlbridge.asdlpack(np.zeros(4, ml_dtypes.float4_e2m1fn))
    with pytest.raises(dlbridge.ConversionError, match="padded"):
        TABLE.dltensor_from_py_object_no_sync(id(tensor), ctypes.byref(abi.DLTensor()))


def test_borrowed_struct_of_another_type():
    array = np.zeros(3)

    def borrow():
        with pytest.raises(TypeError):
            TABLE.dltensor_from_py_object_no_sync(id(array), ctypes.byref(abi.DLTensor()))

    run_in_child(borrow).result()


# ---- managed_tensor_allocator ----------------------------------------------------------------------------------------

def allocate(**fields):
    """What the allocator gave, and the errors that it reported."""
    errors = []
    set_error = abi.SetError(lambda context, kind, message: errors.append((context, kind.decode(), message.decode())))
    prototype = Producer(**{"data": None, "strides": None, **fields}).struct().dl_tensor
    out = Versioned()
    answer = TABLE.managed_tensor_allocator(ctypes.byref(prototype), ctypes.byref(out), 7, set_error)
    return answer, out, errors


@pytest.mark.parametrize("fields", [
    {}, {"ndim": 0}, {"shape": (0, 3)}, {"code": 4, "bits": 16}, {"code": 17, "bits": 4, "shape": (3, 3)},
], ids=["two axes", "rank 0", "no elements", "bfloat16", "packed float4"])
def test_allocation(fields):
    answer, out, errors = allocate(**fields)
    assert (answer, errors) == (0, [])
    made = out.contents.dl_tensor
    assert out.contents.flags & ~abi.IS_COPIED == 0
    assert made.ndim == fields.get("ndim", 2)
    shape = [made.shape[axis] for axis in range(made.ndim)]
    assert shape == list(fields.get("shape", (2, 3)))[:made.ndim]
    elements = int(np.prod(shape))
    nbytes = (elements * made.dtype.bits + 7) // 8
    if nbytes:
        assert made.data % 256 == 0
        ctypes.memset(made.data + made.byte_offset, 0xA5, nbytes)
    delete(out)


ALLOCATIONS = {
    "not the host": {"device_type": abi.CUDA},
    "shape negative": {"shape": (-1, 3)},
    "shape NULL": {"shape": None},
    "extents overflow": {"shape": (2**40, 2**40)},
    "more than any memory": {"shape": (2**50, 1)},
    "ndim 65": {"ndim": 65},
    "dtype unknown": {"code": 99},
}


@pytest.mark.parametrize("fields", ALLOCATIONS.values(), ids=ALLOCATIONS)
def test_allocation_reports_its_error_once_and_sets_none(fields):
    def allocate_it():
        answer, out, errors = allocate(**fields)
        return answer, bool(out), errors, ERROR_SET()

    outcome = run_in_child(allocate_it)
    answer, given, errors, pending = outcome.result()
    assert answer == -1
    assert not given
    assert pending is None
    ((context, kind, message),) = errors
    assert context == 7
    assert kind.endswith("Error")
    assert message
    assert outcome.stderr == ""


# ---- current_work_stream ---------------------------------------------------------------------------------------------

def test_work_stream_of_the_cpu_is_null():
    out = ctypes.c_void_p(1234)
    assert TABLE.current_work_stream(abi.CPU, 0, ctypes.byref(out)) == 0
    assert out.value is None


# ---- other libraries' tables -----------------------------------------------------------------------------------------

@pytest.mark.needs("torch 2.10")
def test_table_of_torch_is_the_way_in():
    import torch
    tensor = torch.arange(6.0)
    assert dlbridge.asdlpack(tensor).protocol == "exchange_api"
    array = dlbridge.convert(tensor, "numpy")
    assert array.ctypes.data == tensor.data_ptr()


@pytest.mark.needs("torch 2.10")
def test_table_of_torch_takes_what_ours_exports():
    """As a C library would carry a tensor from one to the other, without dlbridge's Python."""
    import torch
    memory = bytearray(24)
    _, struct = export(dlbridge.asdlpack(memory))
    out = ctypes.c_void_p()
    assert table_of(torch.Tensor).managed_tensor_to_py_object_no_sync(struct, ctypes.byref(out)) == 0
    tensor = as_object(out.value)
    tensor[0] = 7
    assert memory[0] == 7
    with pytest.raises(BufferError):
        memory.extend(b"more")
    del tensor
    gc.collect()
    memory.extend(b"more")


@pytest.mark.needs("torch 2.10")
def test_table_of_ours_takes_what_torch_exports():
    import torch
    tensor = torch.arange(6.0).reshape(2, 3)
    before = tensor.data_ptr()
    _, struct = export(tensor, table_of(torch.Tensor))
    out = ctypes.c_void_p()
    assert TABLE.managed_tensor_to_py_object_no_sync(struct, ctypes.byref(out)) == 0
    made = as_object(out.value)
    del tensor
    assert made.data_ptr == before
    assert np.from_dlpack(made).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.needs("torch 2.10")
@pytest.mark.parametrize("make", ["FakeTensor", "meta", "sparse", "requires_grad"])
def test_table_of_torch_is_not_trusted(make):
    """It gives NULL data, or drops what matters, and says nothing."""
    import torch

    def convert_it():
        if make == "FakeTensor":
            from torch._subclasses.fake_tensor import FakeTensorMode

            with FakeTensorMode():
                tensor = torch.zeros(3)
        elif make == "meta":
            tensor = torch.zeros(3, device="meta")
        elif make == "sparse":
            tensor = torch.eye(3).to_sparse()
        else:
            tensor = torch.zeros(3, requires_grad=True)
        with pytest.raises(dlbridge.DLBridgeError) as caught:
            dlbridge.convert(tensor, "numpy")
        return str(caught.value)

    assert run_in_child(convert_it).result().startswith("torch: ")


@pytest.mark.needs("torch", "cuda")
def test_strided_memory_view_as_a_source():
    import cuda.core.utils as utils
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = utils.StridedMemoryView.from_dlpack(array, stream_ptr=-1)
    tensor = dlbridge.asdlpack(view)
    assert tensor.protocol == "exchange_api"
    assert tensor.data_ptr == array.ctypes.data
    before = sys.getrefcount(view)
    made = dlbridge.convert(view, "torch")
    assert made.tolist() == array.tolist()
    assert made.data_ptr() == array.ctypes.data
    del made
    gc.collect()
    assert sys.getrefcount(view) == before


@pytest.mark.needs("torch", "cuda")
def test_strided_memory_view_of_read_only_memory():
    import cuda.core.utils as utils
    array = np.arange(6, dtype=np.float32)
    array.flags.writeable = False
    view = utils.StridedMemoryView.from_dlpack(array, stream_ptr=-1)
    assert not dlbridge.convert(view, "numpy").flags.writeable
    made = dlbridge.convert(view, "torch")
    made.fill_(5)
    assert array.tolist() == [0, 1, 2, 3, 4, 5]
