"""Pickles, copies and sizes of a Tensor: what is sent, what is shared, and what comes back."""

import copy
import gc
import multiprocessing
import pickle
import sys
import weakref

import cloudpickle
import ml_dtypes
import numpy as np
import pytest
import torch
from support.importers import capsule_struct
from support.optional import of, params
from support.processes import doubled

import dlbridge
from dlbridge.testing.abi import READ_ONLY

pytestmark = pytest.mark.quick

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
BASE = np.arange(4096, dtype="float32").reshape(8, 16, 32)
# Arrays, and whether the bytes that they touch are all sent, so that the strides stay.
WHOLE = {
    "C": BASE,
    "Fortran": np.asfortranarray(BASE),
    "permuted": BASE.transpose(1, 2, 0),
    "reversed": BASE[::-1, :, ::-1],
    "one value": np.broadcast_to(np.float32(1), (1 << 20,)),
    "one row": np.broadcast_to(BASE[0, 0], (1000, 32)),
    "windows": np.lib.stride_tricks.sliding_window_view(np.arange(1000.0), 100),
    "no axes": np.array(3.0),
    "length-1 axis": np.lib.stride_tricks.as_strided(BASE, (1, 3, 4), (4, 16, 4)),
    "bfloat16": of("ml_dtypes")(lambda: np.asfortranarray(BASE[0].astype(ml_dtypes.bfloat16))),
    "float8": of("ml_dtypes")(lambda: np.ones(9, ml_dtypes.float8_e5m2)),
    "int4": of("ml_dtypes")(lambda: np.arange(5).astype(ml_dtypes.int4)),
    "packed": of("ml_dtypes")(lambda: dlbridge.to_dlpack(np.arange(5).astype(ml_dtypes.int4))),
    "bool": np.ones(5, bool),
    "complex64": np.ones((2, 3), "complex64")[:, ::-1],
}
COMPACTED = {
    "every other": BASE[:, :, ::2],
    "a column": BASE[:, :, 3],
    "empty": np.zeros((0, 4)),
    "an empty axis": np.zeros((3, 0, 2)),
}
FACTS = ("shape", "dtype", "readonly", "nbytes", "itemsize", "size")


def made(layout):
    return dlbridge.asdlpack(layout() if callable(layout) else layout)


def values(tensor):
    return dlbridge.convert(tensor, "numpy").tobytes()


def sent(tensor, protocol=5):
    """A pickle and its buffers."""
    buffers = []
    return pickle.dumps(tensor, protocol, buffer_callback=buffers.append), buffers


# ---- what is sent ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("layout", params(WHOLE))
@pytest.mark.parametrize("readonly", [False, True])
def test_out_of_band_the_memory_itself_is_sent(layout, readonly):
    tensor = made(layout)
    if readonly and not tensor.readonly:
        tensor = dlbridge.asdlpack(frozen(tensor))
    text, buffers = sent(tensor)
    received = pickle.loads(text, buffers=buffers)
    assert [getattr(received, fact) for fact in FACTS] == [getattr(tensor, fact) for fact in FACTS]
    assert (received.data_ptr, received.strides) == (tensor.data_ptr, tensor.strides)
    assert len(buffers[0].raw()) <= tensor.nbytes
    assert len(text) < 200
    assert values(received) == values(tensor)


def frozen(tensor):
    """The same memory, read-only."""
    class Frozen:
        def __dlpack__(self, **keywords):
            capsule = tensor.__dlpack__(max_version=(1, 0))
            capsule_struct(capsule).flags |= READ_ONLY
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    return Frozen()


@pytest.mark.parametrize("layout", params(COMPACTED))
def test_memory_with_holes_is_sent_without_them(layout):
    tensor = made(layout)
    text, buffers = sent(tensor)
    assert len(buffers[0].raw()) == tensor.nbytes
    received = pickle.loads(text, buffers=buffers)
    assert [getattr(received, fact) for fact in FACTS] == [getattr(tensor, fact) for fact in FACTS]
    assert values(received) == values(tensor)


@pytest.mark.parametrize("layout", params(WHOLE | COMPACTED))
def test_in_band_by_every_protocol(layout):
    tensor = made(layout)
    for protocol in PROTOCOLS:
        received = pickle.loads(pickle.dumps(tensor, protocol))
        assert [getattr(received, fact) for fact in FACTS] == [getattr(tensor, fact) for fact in FACTS]
        assert received.data_ptr != tensor.data_ptr
        assert values(received) == values(tensor)


@pytest.mark.needs("torch")
def test_received_memory_that_is_read_only_is_copied_for_torch():
    text, buffers = sent(dlbridge.asdlpack(np.arange(6.0)))
    received = pickle.loads(text, buffers=[bytes(buffer.raw()) for buffer in buffers])
    assert received.readonly
    tensor = dlbridge.convert(received, "torch")
    assert tensor.data_ptr() != received.data_ptr
    tensor[0] = 9
    assert np.asarray(received).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(dlbridge.CopyRequiredError, match="readonly"):
        dlbridge.convert(received, "torch", copy=False)


def test_a_value_that_is_repeated_is_sent_once():
    tensor = dlbridge.asdlpack(WHOLE["one value"])
    assert tensor.nbytes == 4 << 20
    assert [len(buffer.raw()) for buffer in sent(tensor)[1]] == [4]
    assert all(len(pickle.dumps(tensor, protocol)) < 300 for protocol in PROTOCOLS)


def test_what_is_sent_are_bytes_of_one_axis():
    view = memoryview(sent(dlbridge.asdlpack(np.asfortranarray(BASE)))[1][0])
    assert (view.format, view.ndim, view.itemsize, view.contiguous) == ("B", 1, 1, True)


def test_no_pickle_holds_an_address():
    tensor = dlbridge.asdlpack(BASE)
    for protocol in PROTOCOLS:
        text = pickle.dumps(tensor, protocol)
        assert tensor.data_ptr.to_bytes(8, "little") not in text
        assert str(tensor.data_ptr).encode() not in text


# ---- what comes back -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", [bytes, bytearray, lambda raw: memoryview(bytearray(raw)), lambda raw: np.array(raw)],
                         ids=["bytes", "bytearray", "memoryview", "ndarray"])
@pytest.mark.parametrize("readonly", [False, True])
def test_a_tensor_lies_over_what_was_received(kind, readonly):
    source = BASE.copy()
    source.flags.writeable = not readonly
    text, buffers = sent(dlbridge.asdlpack(source))
    arrived = kind(buffers[0].raw())
    tensor = pickle.loads(text, buffers=[arrived])
    assert tensor.data_ptr == np.frombuffer(arrived, "u1").ctypes.data
    assert tensor.readonly is (readonly or memoryview(arrived).readonly)     # pickle itself keeps what was read-only so
    assert values(tensor) == source.tobytes()


def test_what_was_received_is_held():
    text, _ = sent(dlbridge.asdlpack(BASE))
    arrived = bytearray(BASE.tobytes())
    tensor = pickle.loads(text, buffers=[arrived])
    assert tensor.owner is arrived
    with pytest.raises(BufferError):
        arrived.append(1)
    del tensor
    gc.collect()
    arrived.append(1)


def test_what_is_sent_is_held():
    source = BASE.copy()
    alive = weakref.ref(source)
    _, buffers = sent(dlbridge.asdlpack(source))
    del source
    assert alive() is not None
    assert bytes(buffers[0].raw()) == BASE.tobytes()
    buffers.clear()
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("size", [1, 16, 255, 256, 1 << 16])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_writable_memory_stays_writable(protocol, size):
    tensor = pickle.loads(pickle.dumps(dlbridge.asdlpack(np.arange(size, dtype="float32")), protocol))
    array = dlbridge.convert(tensor, "numpy", copy=False)
    array[:] = 7
    assert np.asarray(tensor).tolist() == [7.0] * size


def test_many_bytes_of_an_old_protocol_are_not_copied():
    tensor = pickle.loads(pickle.dumps(dlbridge.asdlpack(BASE.copy()), 4))
    assert type(tensor.owner) is bytes
    assert not tensor.readonly


@pytest.mark.needs("a GIL", "pyarrow")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_else_has_what_came_in_the_pickle_itself(protocol):
    tensor = pickle.loads(pickle.dumps(dlbridge.asdlpack(np.ones(4096, "float32")), protocol))
    array = dlbridge.convert(tensor, "pyarrow", copy=False)
    assert array.buffers()[1].address == tensor.data_ptr
    assert tensor.readonly


@pytest.mark.needs("pyarrow")
def test_others_have_what_was_received_apart():
    text, _ = sent(dlbridge.asdlpack(BASE.copy()))
    arrived = bytearray(BASE.tobytes())
    tensor = pickle.loads(text, buffers=[arrived])
    array = dlbridge.convert(tensor, "pyarrow")
    arrived[:4] = b"\xff" * 4
    assert array.to_numpy()[0, 0, 0] == 0
    assert not tensor.readonly


# ---- damaged pickles -------------------------------------------------------------------------------------------------

GOOD = (bytes(48), 0, (2, 3), (3, 1), "float64", False)


@pytest.mark.parametrize(("place", "value", "error"), [
    (0, bytes(47), dlbridge.ConversionError),
    (0, memoryview(bytes(96))[::2], BufferError),
    (0, "text", TypeError),
    (1, 8, dlbridge.ConversionError),
    (1, -1, dlbridge.ConversionError),
    (1, 49, dlbridge.ConversionError),
    (1, 2**63 - 1, dlbridge.ConversionError),
    (1, 2**70, OverflowError),
    (2, (2,), dlbridge.ConversionError),
    (2, (2**40, 3), dlbridge.ConversionError),
    (2, (-1, 3), dlbridge.ConversionError),
    (2, (2**62, 2**62), dlbridge.ConversionError),
    (2, ("2", 3), TypeError),
    (2, [2, 3], TypeError),
    (3, (-3, 1), dlbridge.ConversionError),
    (3, (2**61, 1), dlbridge.ConversionError),
    (3, (3, 2**70), OverflowError),
    (4, "float128", dlbridge.ConversionError),
    (4, None, dlbridge.ConversionError),
    (4, "complex128", dlbridge.ConversionError),
])
def test_a_damaged_pickle_is_refused(place, value, error):
    rebuild, _ = dlbridge.asdlpack(BASE).__reduce_ex__(5)
    assert rebuild(*GOOD).shape == (2, 3)
    with pytest.raises(error):
        rebuild(*GOOD[:place], value, *GOOD[place + 1:])


@pytest.mark.parametrize("device", [(99, 0), (2, -7), (-1, 0)])
def test_a_damaged_device_is_refused(device):
    rebuild, _ = dlbridge.asdlpack(BASE).__reduce_ex__(5)
    with pytest.raises(dlbridge.DeviceError):
        rebuild(*GOOD[:6], *device)
    assert rebuild(*GOOD[:6], 2, 1).pickled_on == "cuda:1"


def test_a_buffer_is_let_go_if_the_pickle_is_damaged():
    rebuild, _ = dlbridge.asdlpack(BASE).__reduce_ex__(5)
    arrived = bytearray(48)
    for place, value in ((1, 8), (1, 49), (2, (4, 3)), (2, ("2", 3)), (3, (-3, 1))):
        with pytest.raises((dlbridge.ConversionError, TypeError)):
            rebuild(arrived, *GOOD[1:place], value, *GOOD[place + 1:])
    arrived.append(1)


@pytest.mark.parametrize("axes", [65, 1000])
def test_too_many_axes(axes):
    rebuild, _ = dlbridge.asdlpack(BASE).__reduce_ex__(5)
    with pytest.raises(dlbridge.ConversionError, match="ndim"):
        rebuild(bytes(8), 0, (1,) * axes, (1,) * axes, "float64", False)


# ---- copies ----------------------------------------------------------------------------------------------------------

def test_a_copy_shares_the_memory():
    source = np.arange(6.0)
    source.flags.writeable = False
    tensor = dlbridge.asdlpack(source, readonly="error")
    other = copy.copy(tensor)
    assert other is not tensor
    assert (other.data_ptr, other.readonly, other.owner) == (tensor.data_ptr, True, source)
    with pytest.raises(dlbridge.ConversionError, match="legacy"):        # the policy too is the same
        other.__dlpack__()
    del tensor
    assert np.asarray(other).tolist() == source.tolist()


@pytest.mark.parametrize("layout", params(WHOLE | COMPACTED))
def test_a_deep_copy_has_memory_of_its_own(layout):
    tensor = made(layout)
    other = copy.deepcopy(tensor)
    assert (other.shape, other.dtype) == (tensor.shape, tensor.dtype)
    assert other.data_ptr != tensor.data_ptr or not tensor.size
    assert not other.readonly
    assert values(other) == values(tensor)


def test_a_tensor_that_is_twice_in_a_tree_is_copied_once():
    tensor = dlbridge.asdlpack(np.ones(3))
    first, second = copy.deepcopy([tensor, tensor])
    assert first is second


# ---- sizes and other processes ---------------------------------------------------------------------------------------

def test_the_size_counts_memory_of_its_own():
    source = np.zeros(1 << 20, "u1")
    assert sys.getsizeof(dlbridge.asdlpack(source)) < 1000
    assert 1 << 20 <= sys.getsizeof(dlbridge.asdlpack(source, copy=True)) < (1 << 20) + 1000


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_through_a_pipe_to_another_process(start):
    context = multiprocessing.get_context(start)
    ours, theirs = context.Pipe()
    process = context.Process(target=doubled, args=(theirs,))
    process.start()
    theirs.close()
    ours.send(dlbridge.asdlpack(BASE[::-1]))
    received = ours.recv()
    process.join()
    assert np.array_equal(np.asarray(received), BASE[::-1] * 2)
    assert not received.readonly


@pytest.mark.needs("torch", "ml_dtypes")
def test_types_that_others_cannot_send():
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        source = torch.arange(8).to(dtype)
        text, buffers = sent(dlbridge.asdlpack(source))
        back = dlbridge.convert(pickle.loads(text, buffers=buffers), "torch")
        assert back.dtype == dtype
        assert back.data_ptr() == source.data_ptr()


# ---- functions -------------------------------------------------------------------------------------------------------

NUMBERS = np.arange(3, dtype="float32")
SENDERS = {"copy": copy.copy, "deepcopy": copy.deepcopy}
IN_SCRIPTS = SENDERS | {"cloudpickle": of("cloudpickle")(lambda sent: pickle.loads(cloudpickle.dumps(sent)))}
EVERY_WAY = IN_SCRIPTS | {"pickle": lambda sent: pickle.loads(pickle.dumps(sent))}
DECORATORS = {
    "to numpy": lambda: dlbridge.accepts("numpy"),
    "returns": lambda: dlbridge.accepts("numpy", returns="like"),
    "keywords": lambda: dlbridge.accepts("numpy", copy=True, others="raise", columns="pass"),
    "a module": lambda: dlbridge.accepts(np),
    "gradients in jax": of("torch", "jax")(lambda: dlbridge.accepts("jax", returns="like", gradients=True)),
    "gradients in torch": of("torch", "jax")(lambda: dlbridge.accepts("torch", returns="like", gradients=True)),
}
RETURNED = {
    "Plan": lambda: dlbridge.explain(NUMBERS, "memoryview"),
    "Tensor": lambda: dlbridge.from_dlpack(NUMBERS),
    "Tensor of an address": lambda: dlbridge.from_pointer(
        NUMBERS.ctypes.data, shape=(3,), dtype="float32", owner=NUMBERS),
    "targets": dlbridge.targets,
    "get_include": dlbridge.get_include,
}


@pytest.mark.parametrize("way", params(EVERY_WAY))
def test_public_functions_and_types_are_sent_by_name(way):
    for name in dlbridge.__all__:
        public = getattr(dlbridge, name)
        there = way(public)
        assert there == public if isinstance(public, tuple) else there is public


@pytest.mark.parametrize("way", params(EVERY_WAY))
@pytest.mark.parametrize("make", params(RETURNED))
def test_what_public_functions_return_is_sent(make, way):
    there, here = way(make()), make()
    assert type(there) is type(here)
    if isinstance(here, dlbridge.Tensor):
        assert values(there) == values(here)
    else:
        assert there == here


@pytest.mark.parametrize("way", params(IN_SCRIPTS))
@pytest.mark.parametrize("make", params(DECORATORS))
def test_a_decorated_function_is_sent(make, way):
    """A function of a script or a notebook is sent by its value, before and after its first call."""
    function = way(make())(lambda x: x * 2)
    for each in (function, way(function)):
        assert [float(number) for number in each(NUMBERS)] == [0, 2, 4]
    assert [float(number) for number in way(way(function))(x=NUMBERS)] == [0, 2, 4]


@pytest.mark.needs("torch", "jax", "cloudpickle")
def test_a_function_is_sent_after_its_gradients_were_found():
    square = dlbridge.accepts("jax", returns="like", gradients=True)(lambda x: (x * x).sum())
    for function in (square, pickle.loads(cloudpickle.dumps(square))):
        x = torch.ones(2, requires_grad=True)
        function(x).backward()
        assert x.grad.tolist() == [2, 2]
        again = pickle.loads(cloudpickle.dumps(function))
        assert again(torch.ones(2)).item() == 2


def test_errors_are_sent_whole():
    with pytest.raises(dlbridge.UnsupportedError) as raised:
        dlbridge.convert([1], "numpy")
    for way in (copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))):
        there = way(raised.value)
        assert (type(there), str(there), vars(there)) == (
            type(raised.value), str(raised.value), vars(raised.value))
