"""torch, CuPy and Numba for CUDA, as they are installed, on the fake driver: everything but their kernels.

What a GPU's memory holds gets there by copies, which the driver makes, and is read in the same way. Whether work is in
order is seen by the driver's clocks. Times on a GPU are not seen here.
"""

import gc
import itertools

import cupy
import ml_dtypes
import numpy as np
import pytest
import torch
from fake_driver.control import driver
from fake_driver.producers import order
from numba import cuda

import dlbridge
import dlbridge.testing
from dlbridge.testing import unordered_releases

LAYOUTS = {
    "compact": lambda array: array,
    "transposed": lambda array: array.T,
    "every second": lambda array: array[:, ::2],
    "backwards": lambda array: array[::-1, ::-2],
    "offset": lambda array: array[2:, 3:],
    "0-d": lambda array: array[3, 2, ...],
    "empty": lambda array: array[:0],
}
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128", "bfloat16")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def to_torch(values):
    if values.dtype == BFLOAT16:
        return torch.from_numpy(values.view("uint16").copy()).cuda().view(torch.bfloat16)
    return torch.from_numpy(values.copy()).cuda()


MAKE = {"torch": to_torch, "cupy": cupy.asarray, "numba": cuda.to_device}
PAIRS = list(itertools.permutations(MAKE, 2))
# What a library does not have, or makes by a kernel.
SOURCE_LACKS = {"torch": {"backwards"}, "numba": {"transposed", "backwards", "0-d", "bfloat16"}, "cupy": set()}
TARGET_LACKS = {"torch": {"backwards"}, "numba": {"bfloat16"}, "cupy": set()}
CASES = [(source, target, dtype, layout) for source, target in PAIRS for dtype in DTYPES for layout in LAYOUTS
         if not {dtype, layout} & (SOURCE_LACKS[source] | TARGET_LACKS[target])]


def described(array):
    """Address, shape, strides in elements, and dtype, by what the library itself says."""
    if isinstance(array, torch.Tensor):
        return array.data_ptr(), tuple(array.shape), array.stride(), str(array.dtype).removeprefix("torch.")
    address = array.data.ptr if isinstance(array, cupy.ndarray) else array.device_ctypes_pointer.value or 0
    return address, array.shape, tuple(step // array.dtype.itemsize for step in array.strides), str(array.dtype)


@pytest.mark.parametrize(("source", "target", "dtype", "layout"), CASES)
def test_values_and_addresses(source, target, dtype, layout):
    values = (np.arange(48) % 7).reshape(6, 8).astype(BFLOAT16 if dtype == "bfloat16" else dtype)
    array = LAYOUTS[layout](MAKE[source](values))
    made = dlbridge.convert(array, target)
    expected, found = described(array), described(made)
    if LAYOUTS[layout](values).size:
        assert found == expected
        np.testing.assert_array_equal(dlbridge.convert(made, "numpy", device="cpu"), LAYOUTS[layout](values))
    else:
        assert found[1::2] == expected[1::2]
    if target == "cupy":
        own = cupy.from_dlpack(dlbridge.asdlpack(array))
        for name in "c_contiguous", "f_contiguous":
            assert getattr(made.flags, name) == getattr(own.flags, name)
        assert (made.device, made.nbytes, made.itemsize) == (own.device, own.nbytes, own.itemsize)
    assert (driver.races(), unordered_releases()) == ([], 0)


def test_strides_that_are_no_whole_elements():
    values = np.arange(12, dtype="f4").reshape(4, 3)
    odd = cupy.asarray(values)[:, :2].view("c8")        # CuPy's own export says that they are
    np.testing.assert_array_equal(dlbridge.convert(odd, "numpy", device="cpu"), values[:, :2].view("c8"))


def new_stream(library):
    made = {"torch": torch.cuda.Stream, "numba": cuda.stream,
            "cupy": lambda: cupy.cuda.Stream(non_blocking=True)}[library]()
    return made, {"torch": lambda: made.cuda_stream, "cupy": lambda: made.ptr, "numba": lambda: int(made)}[library]()


def current(library, stream):
    return {"torch": torch.cuda.stream, "cupy": lambda stream: stream}[library](stream)


@pytest.mark.parametrize(("source", "target"), [("cupy", "torch"), ("torch", "cupy")])
def test_each_waits_for_the_current_stream_of_the_other(source, target):
    array = MAKE[source](np.arange(4.0))
    (first, producer), (then, consumer) = new_stream(source), new_stream(target)
    with current(source, first), current(target, then):
        driver.clear()
        made = dlbridge.convert(array, target)
        assert order() == [(producer, consumer)]
        driver.use(described(made)[0], consumer, "write")
        driver.clear()
        del made
        gc.collect()
        assert order() == [(consumer, producer)]
        driver.use(described(array)[0], producer, "write")
    assert (driver.races(), unordered_releases()) == ([], 0)


@pytest.mark.parametrize("target", ["torch", "cupy"])
def test_the_stream_of_numbas_array_is_waited_for(target):
    stream, producer = new_stream("numba")
    array = cuda.to_device(np.arange(4.0), stream=stream)
    then, consumer = new_stream(target)
    with current(target, then):
        driver.clear()
        made = dlbridge.convert(array, target)
        assert order() == [(producer, consumer)]
        driver.clear()
        del made
        gc.collect()
        assert order() == [(consumer, producer)]
    assert (driver.races(), unordered_releases()) == ([], 0)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_second_device(source, target):
    with cupy.cuda.Device(1), torch.cuda.device(1), cuda.gpus[1]:
        array = MAKE[source](np.arange(4.0))
    driver.make_current(0)
    made = dlbridge.convert(array, target)
    assert (described(made), dlbridge.asdlpack(made).device) == (described(array), "cuda:1")
    assert (cupy.cuda.Device().id, torch.cuda.current_device(), driver.current_device()) == (0, 0, 0)


def test_managed_memory_keeps_its_device():
    for index in 0, 1:
        with cupy.cuda.Device(index):
            array = cupy.ndarray((4,), "f4", cupy.cuda.malloc_managed(16))
        made = dlbridge.convert(dlbridge.asdlpack(array), "cupy")
        assert (made.data.ptr, made.device.id) == (array.data.ptr, index)


@pytest.mark.parametrize("target", ["torch", "numba"])
def test_cupys_memory_goes_back_with_the_last_consumer(target):
    pool = cupy.get_default_memory_pool()
    gc.collect()
    before = pool.used_bytes()
    array = cupy.asarray(np.arange(1000.0))
    used = pool.used_bytes()
    made = dlbridge.convert(array, target)
    del array
    gc.collect()
    assert pool.used_bytes() == used > before
    del made
    gc.collect()
    dlbridge.testing.waiting_releases()
    assert pool.used_bytes() == before


@pytest.mark.parametrize("pinned", [False, True])
def test_torchs_uploads_of_a_tree_are_waited_for_together(pinned):
    tree = [torch.full((100, 2), index, dtype=torch.uint8, pin_memory=pinned).numpy() for index in range(20)]
    driver.clear()
    dense = dlbridge.convert_tree(tree, "torch", device="cuda")
    assert len(driver.log("StreamSynchronize")) == 1
    driver.clear()
    strided = dlbridge.convert_tree([array[:, 0] for array in tree], "torch", device="cuda")
    assert len(driver.log("StreamSynchronize")) == 20       # each reads a copy that torch makes, and does not keep
    for index, (array, there, column) in enumerate(zip(tree, dense, strided, strict=True)):
        array[...] = 255
        assert there.device.type == column.device.type == "cuda"
        assert bytes(there.cpu().numpy()) == bytes([index]) * 200
        assert bytes(column.cpu().numpy()) == bytes([index]) * 100


def test_torchs_memory_goes_back_with_the_last_view_of_cupys():
    gc.collect()
    before = torch.cuda.memory_allocated()
    tensor = to_torch(np.arange(1000.0))
    view = dlbridge.convert(tensor, "cupy")[::2]
    used = torch.cuda.memory_allocated()
    del tensor
    gc.collect()
    assert torch.cuda.memory_allocated() == used > before
    del view
    gc.collect()
    assert torch.cuda.memory_allocated() == before
