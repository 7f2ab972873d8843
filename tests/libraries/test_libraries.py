"""The same cases for every library: a new one is a row of rows.py, or of the module DLBRIDGE_TEST_ROWS."""

import gc
import importlib
import os
import time

import ml_dtypes
import numpy as np
import pytest
from libraries.row import COMPLEX, FLOATS, INTEGERS, ML_DTYPES
from support.optional import params
from support.producers import LegacyProducer

import dlbridge
from dlbridge.testing.producers import Producer

ROWS = importlib.import_module(os.environ.get("DLBRIDGE_TEST_ROWS", "libraries.rows")).ROWS
DTYPES = ("bool", *INTEGERS, *FLOATS, *COMPLEX)
EXPORTING = [row for row in ROWS if hasattr(row.array_type, "__dlpack__")]
rows = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
dtypes = pytest.mark.parametrize("dtype", DTYPES)
LAYOUTS = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1],
    "broadcast": lambda x: np.lib.stride_tricks.as_strided(x, x.shape, (0, x.strides[1])),      # and writable
}


def shared(row):
    """What explain() says of memory that the library holds as it is."""
    return "return" if row.name == "numpy" else "share"


def numbers_for(row, dtype="float32"):
    """As many axes as a library can have, up to two."""
    return numbers(dtype) if 2 in row.axes else numbers(dtype).reshape(12)


def numbers(dtype="float32"):
    """Twelve of them, in memory that every library can share."""
    memory = np.zeros(4096, "uint8")
    start = -memory.ctypes.data % 256
    array = memory[start:start + 12 * np.dtype(dtype).itemsize].view(dtype).reshape(3, 4)
    array[:] = np.arange(12).reshape(3, 4) % 2 if dtype == "bool" else np.arange(12).reshape(3, 4)
    if dtype in COMPLEX:
        array.imag = -1
    return array


# ---- values and memory -----------------------------------------------------------------------------------------------

@rows
def test_a_batch_is_the_callers_own(row):
    source = numbers_for(row)
    own = row.make(source)
    [given] = dlbridge.prefetch([own], row.name)
    assert isinstance(given, row.array_type)
    assert row.values(given) == row.values(own)
    assert (given is own) == (row.name in ("jax", "tensorflow", "pyarrow"))
    if row.address is not None and given is not own:
        assert row.address(given) != row.address(own)

    def camera():
        for index in range(4):
            source[:] = index
            yield source

    found = list(dlbridge.prefetch(camera(), row.name))
    assert [row.values(each) for each in found] == [np.full(source.shape, index).tolist() for index in range(4)]


@rows
@dtypes
def test_into_the_library(row, dtype):
    source = numbers_for(row, dtype)
    if dtype not in row.dtypes:
        with pytest.raises(dlbridge.ConversionError, match=f"^{row.name}: dtype {dtype}: "):
            dlbridge.convert(source, row.name)
        return
    made = dlbridge.convert(source, row.name, readonly="share")
    assert isinstance(made, row.array_type)
    assert row.values(made) == source.tolist()
    if row.address is not None and row.shares:
        assert row.address(made) == source.ctypes.data


@pytest.mark.parametrize("row", [row for row in ROWS if row.copies], ids=lambda row: row.name)
def test_what_is_read_by_a_copy_says_so(row):
    given = row.make(numbers_for(row))
    assert dlbridge.explain(given, "numpy").action == "copy"
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(given, "numpy", copy=False)


@pytest.mark.parametrize(("row", "dtype"), [
    pytest.param(row, dtype, id=f"{row.name}-{dtype}") for row in ROWS for dtype in DTYPES if dtype in row.dtypes])
def test_out_of_the_library(row, dtype):
    source = numbers_for(row, dtype)
    given = row.make(source)
    array = dlbridge.convert(given, "numpy")
    assert array.dtype == dtype
    assert array.tolist() == source.tolist()
    assert array.flags.writeable != row.immutable
    if row.address is not None:
        assert array.ctypes.data == row.address(given)


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore:Exporting an unversioned:DeprecationWarning")       # pyarrow's own
@pytest.mark.parametrize("row", EXPORTING, ids=lambda row: row.name)
@pytest.mark.parametrize("of", [LegacyProducer, lambda array: array.__dlpack__()], ids=["class", "capsule"])
def test_who_exports_decides_whatever_stands_in_front(row, of):
    """A legacy capsule does not say whether its memory may be written."""
    given = row.make(numbers_for(row))
    values = row.values(given)
    tensor = dlbridge.convert(of(given), "torch")
    assert row.values(given) == values == tensor.tolist()
    tensor.zero_()
    assert row.values(given) in (values, tensor.tolist())
    if row.immutable:
        assert row.values(given) == values
        assert not dlbridge.convert(of(given), "numpy").flags.writeable


@rows
@pytest.mark.parametrize("dtype", ML_DTYPES)
def test_types_that_numpy_has_from_elsewhere(row, dtype):
    source = numbers_for(row, "uint8").astype(getattr(ml_dtypes, dtype))
    if dtype not in row.ml_dtypes:
        with pytest.raises(dlbridge.ConversionError, match=f"^{row.name}: dtype {dtype}: "):
            dlbridge.convert(source, row.name)
        return
    made = dlbridge.convert(source, row.name)
    assert isinstance(made, row.array_type)
    if dtype in row.unexported:
        assert row.values(made) == source.tolist()
        return
    array = dlbridge.convert(made, "numpy")
    assert array.dtype == source.dtype
    assert array.tobytes() == source.tobytes()


@rows
def test_what_is_shared_is_shared(row):
    source = numbers_for(row)
    if not row.shares:
        with pytest.raises(dlbridge.CopyRequiredError, match=f"^{row.name}: memory of others"):
            dlbridge.convert(source, row.name, copy=False)
        return
    made = dlbridge.convert(source, row.name, copy=False, readonly="share")
    source.flat[0] = 99
    assert np.ravel(row.values(made))[0] == 99


@rows
def test_a_copy_is_one(row):
    source = numbers_for(row)
    made = dlbridge.convert(source, row.name, copy=True)
    source.flat[0] = 99
    assert np.ravel(row.values(made))[0] == 0


@pytest.mark.parametrize("row", [row for row in ROWS if 2 in row.axes], ids=lambda row: row.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(row, layout):
    source = LAYOUTS[layout](numbers())
    expected = shared(row) if layout in row.layouts and row.shares else "copy"
    assert dlbridge.explain(source, row.name, readonly="share").action == expected
    made = dlbridge.convert(source, row.name, readonly="share")
    assert row.values(made) == source.tolist()
    assert dlbridge.convert(made, "numpy").tolist() == source.tolist()


@rows
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 1, 3), (1, 2, 1, 2), (1, 1, 2, 1, 2)])
def test_shapes(row, shape):
    source = np.zeros(shape, "float32")
    source[...] = 7
    if len(shape) not in row.axes:
        with pytest.raises(dlbridge.ConversionError, match=f"^{row.name}: "):
            dlbridge.convert(source, row.name)
        return
    made = dlbridge.convert(source, row.name)
    assert dlbridge.convert(made, "numpy").shape == shape
    assert dlbridge.convert(made, "numpy").tolist() == source.tolist()


@rows
def test_memory_that_is_not_aligned(row):
    memory = numbers_for(row).reshape(12)[1:9]
    expected = shared(row) if row.alignment <= 4 and row.shares else "copy"
    assert dlbridge.explain(memory, row.name, readonly="share").action == expected
    assert row.values(dlbridge.convert(memory, row.name, readonly="share")) == memory.tolist()


@pytest.mark.parametrize("name", params(["paddle", "torch"]))
def test_complex128_at_an_odd_address(name):
    """Their kernels read it by aligned loads, which end the process."""
    memory = np.zeros(80, "uint8")
    memory = memory[-memory.ctypes.data % 16 + 8:][:48].view("complex128")
    memory[:] = [1, 2j, 3]
    assert "not aligned to 16 bytes" in dlbridge.explain(memory, name).reason
    made = dlbridge.convert(memory, name)
    assert (made + made).tolist() == [2, 4j, 6]


@rows
def test_the_other_byte_order(row):
    source = numbers_for(row).astype(">f4")
    assert row.values(dlbridge.convert(source, row.name)) == source.tolist()


# ---- read-only memory ------------------------------------------------------------------------------------------------

@rows
def test_read_only_memory(row):
    source = array = numbers_for(row)
    while array is not None:        # so that nobody can write to it
        array.flags.writeable, array = False, array.base
    expected = shared(row) if row.told and row.shares else "copy"
    assert dlbridge.explain(source, row.name).action == expected
    assert row.values(dlbridge.convert(source, row.name)) == source.tolist()
    given = dlbridge.convert(source, row.name, readonly="share")
    if row.address is not None and row.shares:
        assert row.address(given) == source.ctypes.data


@pytest.mark.parametrize("name", params(["jax", "tensorflow", "pyarrow"]))
def test_writable_memory_is_copied_for_arrays_that_must_not_change(name):
    row = next(row for row in ROWS if row.name == name)
    for size in range(1, 100):
        source = np.zeros(size, "float32")
        made = dlbridge.convert(source, name)
        source[:] = 1
        assert not np.any(row.values(made))
    with pytest.raises(dlbridge.CopyRequiredError, match="must not change"):
        dlbridge.convert(source, name, copy=False)


# ---- lifetime --------------------------------------------------------------------------------------------------------

def soon(holds):
    """Some libraries let go in a thread of their own."""
    end = time.monotonic() + 20
    while not holds():
        gc.collect()
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@rows
def test_memory_is_held_and_let_go_once(row):
    producer = Producer(numbers_for(row))
    made = dlbridge.convert(producer, row.name, readonly="share")
    producer.forget()
    gc.collect()
    if row.shares:
        assert producer.deleted == 0
    assert row.values(made) == producer.array.tolist()
    del made
    assert soon(lambda: producer.deleted == 1)
    time.sleep(0.05)
    assert producer.deleted == 1


@rows
def test_an_array_outlives_what_it_came_from(row):
    array = dlbridge.convert(row.make(numbers_for(row)), "numpy")
    gc.collect()
    row.make(numbers_for(row) + 50)
    assert array.tolist() == numbers_for(row).tolist()


# ---- names -----------------------------------------------------------------------------------------------------------

@rows
def test_an_array_stays_itself(row):
    made = row.make(numbers_for(row))
    assert dlbridge.convert(made, row.name) is made


@rows
def test_the_type_and_an_array_name_the_library(row):
    for to in (row.array_type, row.make(numbers_for(row))):
        assert isinstance(dlbridge.convert(numbers_for(row), to), row.array_type)


@rows
def test_the_device_of_an_array_is_one(row):
    made = row.make(numbers_for(row))
    device = getattr(made, "device", None) or getattr(made, "place", None)      # which Paddle calls it
    if device is None or callable(device):
        device = "cpu"
    assert dlbridge.convert(made, row.name, device=device) is made
    assert isinstance(dlbridge.convert(numbers_for(row), row.name, device=device), row.array_type)
    assert dlbridge.explain(made, row.name, device=device).action == "return"
    assert dlbridge.convert_tree([made], row.name, device=device)[0] is made
    assert dlbridge.asdlpack(made, device=device).device == "cpu"


@rows
@pytest.mark.parametrize("other", ROWS, ids=[row.name for row in ROWS])
def test_every_pair(row, other):
    source = numbers_for(row if 2 not in row.axes else other)
    assert other.values(dlbridge.convert(row.make(source), other.name)) == source.tolist()


@pytest.mark.needs("tensorflow")
def test_tensorflows_own_copy_is_one_while_a_function_is_traced_too():
    import tensorflow

    from dlbridge.libraries.tensorflow import LIBRARY

    tensor, copies = tensorflow.constant([0.0, 1, 2]), []
    copies.append(LIBRARY.copier.value(tensor, None))
    tensorflow.function(lambda: copies.append(LIBRARY.copier.value(tensor, 1)))()
    for copy in copies:
        assert copy.numpy().tolist() == [0, 1, 2]
        assert np.from_dlpack(copy).ctypes.data != np.from_dlpack(tensor).ctypes.data
