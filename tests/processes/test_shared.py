"""Memory that other processes can map, in the process that made it."""

import gc

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.children import in_child
from support.optional import of, params
from support.sharing import array_of, descriptors, mapped, message, received

import dlbridge

BASE = np.arange(24, dtype="float32").reshape(2, 3, 4)

# Arrays, and the strides of their copies.
ARRAYS = params({
    "compact": (lambda: BASE, (12, 4, 1)),
    "in another order": (lambda: BASE.transpose(2, 0, 1), (1, 12, 4)),
    "backward": (lambda: BASE[:, ::-1], (12, 4, 1)),
    "with gaps": (lambda: BASE[:, :, ::2], (6, 2, 1)),
    "repeated": (lambda: np.broadcast_to(BASE[0], (2, 3, 4)), (12, 4, 1)),
    "big-endian": (lambda: BASE.astype(">f4"), (12, 4, 1)),
    "an element": (lambda: BASE[1, 1, 1, ...], ()),
    "bytes": (lambda: b"12345", (1,)),
    "torch, lazily negative": (of("torch")(lambda: torch.from_numpy(BASE * np.complex64(-1j)).conj().imag), (12, 4, 1)),
    "jax": (of("jax")(lambda: jnp.asarray(BASE)), (12, 4, 1)),
})


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize(("make", "strides"), ARRAYS)
def test_a_copy_has_the_values_and_is_nobody_elses(make, strides, readonly):
    source = make()
    tensor = dlbridge.shared(source, readonly=readonly)
    assert (tensor.strides, tensor.device, tensor.readonly) == (strides, "cpu", readonly)
    plain = dlbridge.convert(source, "numpy")
    np.testing.assert_array_equal(array_of(tensor), plain)
    assert not np.shares_memory(array_of(tensor), plain)


def test_new_memory_is_of_zeros():
    tensor = dlbridge.shared_empty((2, 3), "int16")
    assert (tensor.shape, tensor.strides, tensor.readonly, tensor.data_ptr % 4096) == ((2, 3), (3, 1), False, 0)
    assert array_of(tensor).tolist() == [[0] * 3] * 2
    array_of(tensor)[1] = 7
    assert array_of(tensor).tolist() == [[0] * 3, [7] * 3]
    assert (dlbridge.shared_empty(3).dtype, dlbridge.shared_empty(()).shape) == (np.float64, ())


def test_what_is_shared_already_is_returned():
    tensor = dlbridge.shared_empty((2, 3))
    assert dlbridge.shared(tensor) is tensor
    view = dlbridge.shared(array_of(tensor)[:, 1:])
    assert (view.data_ptr, view.strides) == (tensor.data_ptr + 8, (3, 1))
    constant = dlbridge.shared(tensor, readonly=True)
    assert constant.data_ptr != tensor.data_ptr
    assert dlbridge.shared(constant, readonly=True) is constant is dlbridge.shared(constant)


def test_copies_are_made_and_refused_on_request():
    tensor = dlbridge.shared_empty((2, 3))
    assert dlbridge.shared(tensor, copy=False) is tensor
    assert dlbridge.shared(tensor, copy=True).data_ptr != tensor.data_ptr
    with pytest.raises(dlbridge.CopyRequiredError, match=r"shared: copy False: but other .*shared_empty\(\)"):
        dlbridge.shared(BASE, copy=False)
    with pytest.raises(dlbridge.CopyRequiredError, match="shared: copy False: but others may write"):
        dlbridge.shared(tensor, copy=False, readonly=True)
    with pytest.raises(TypeError, match="shared: copy 1: is not one of None, True and False"):
        dlbridge.shared(BASE, copy=1)


def test_without_elements_there_is_nothing_to_share():
    for tensor in dlbridge.shared(np.zeros((0, 3)).__dlpack__()), dlbridge.shared_empty((0, 3)):
        assert (tensor.shape, tensor.dtype) == ((0, 3), np.float64)
        assert dlbridge.shared(tensor) is tensor


@pytest.mark.needs("jax", "torch")
def test_libraries_with_immutable_arrays_share_what_nobody_can_write():
    constant = dlbridge.shared(np.zeros((2, 16), "float32"), readonly=True)
    for source in constant, array_of(constant), array_of(constant)[1:]:         # at multiples of 64 bytes
        array = dlbridge.convert(source, "jax", copy=False)
        assert array.unsafe_buffer_pointer() == dlbridge.asdlpack(source).data_ptr
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(dlbridge.shared(BASE), "jax", copy=False)
    flagged = array_of(dlbridge.shared(BASE))
    flagged.flags.writeable = False         # which does not keep others from writing
    for source in flagged, received(message(dlbridge.asdlpack(flagged))):
        with pytest.raises(dlbridge.CopyRequiredError):
            dlbridge.convert(source, "jax", copy=False)


@pytest.mark.needs("torch")
def test_torch_shares_it_in_its_own_way_too():
    tensor = dlbridge.shared(BASE)
    ours = dlbridge.convert(tensor, "torch")
    assert ours.data_ptr() == tensor.data_ptr
    ours.share_memory_()
    assert ours.is_shared()
    assert ours.tolist() == BASE.tolist()
    theirs = torch.ones(3).share_memory_()
    assert dlbridge.asdlpack(theirs).data_ptr == theirs.data_ptr()
    assert dlbridge.shared(theirs).data_ptr != theirs.data_ptr()        # its descriptor is torch's


def test_memory_and_descriptors_are_given_back():
    gc.collect()
    before = descriptors(), mapped()
    for _ in range(100):
        array = array_of(dlbridge.shared(BASE))
    assert (descriptors(), mapped()) == (before[0] + 1, before[1] + 1)
    assert array.tolist() == BASE.tolist()          # it keeps its memory
    del array
    gc.collect()
    assert (descriptors(), mapped()) == before


def test_too_much_is_an_error_before_anything_is_written():
    for nbytes in 1 << 46, 1 << 60:
        with pytest.raises(MemoryError, match=rf"shared_empty: {nbytes} bytes: do not fit"):
            dlbridge.shared_empty(nbytes, "uint8")
    repeated = np.broadcast_to(np.zeros(1, "uint8"), (1 << 46,))
    with pytest.raises(MemoryError, match="shared: "):
        dlbridge.shared(repeated)


@in_child
def test_what_the_system_refuses_is_said():
    import os
    import resource

    import numpy as np
    import pytest

    import dlbridge

    with open("empty", "wb+") as file:
        file.truncate(1 << 20)
        mapped = np.memmap(file, "uint8")
        file.truncate(0)
    os.unlink("empty")
    with pytest.raises(OSError, match=r"1048576 bytes: .* \(the memory of the array cannot be read"):
        dlbridge.shared(mapped)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    with pytest.raises(OSError, match=r"shared_empty: 2097152 bytes: .* ulimit -f"):
        dlbridge.shared_empty(1 << 21, "uint8")


def test_bad_input():
    with pytest.raises(TypeError, match="readonly 'no'"):
        dlbridge.shared(BASE, readonly="no")
    for function in "sendable", "is_on_host", "names_gpu":
        with pytest.raises((TypeError, dlbridge.DeviceError)):
            getattr(dlbridge.processes.segment, function)(None)
    with pytest.raises(TypeError, match="Sendable"):
        dlbridge.processes.segment.Sendable()
    with pytest.raises(dlbridge.ConversionError, match=r"shared_empty: shape \(-1,\)"):
        dlbridge.shared_empty((-1,))
    with pytest.raises(dlbridge.UnsupportedError, match=r"numpy.asarray\(x\)"):
        dlbridge.shared([1, 2])


def test_a_copy_into_it_is_seen():
    with dlbridge.watch() as copies:
        tensor = dlbridge.shared(BASE)
        dlbridge.shared(tensor)
    copy, = copies
    assert (copy.nbytes, copy.target, copy.hint) == (96, "shared memory", "write to dlbridge.shared_empty()")


@in_child
def test_signals_do_not_keep_it_from_being_made():
    import signal

    import numpy as np

    import dlbridge

    count = []
    signal.signal(signal.SIGALRM, lambda number, frame: count.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    while len(count) < 20:
        array = dlbridge.convert(dlbridge.shared_empty(1 << 26, "uint8"), "numpy")
        assert not array[:: 4096].any()
        assert dlbridge.convert(dlbridge.shared(np.ones(1 << 26, "uint8")), "numpy")[:: 4096].all()
    signal.setitimer(signal.ITIMER_REAL, 0)
