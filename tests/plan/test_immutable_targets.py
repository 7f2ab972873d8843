"""Targets whose arrays must not change: writable memory is shared on a promise alone."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.optional import of, params

import dlbridge

# NumPy's memory is where JAX can share it for some of these sizes, and elsewhere for the others.
SIZES = range(1, 201)
TARGETS = [("jax", np.asarray), ("pyarrow", lambda array: array.to_numpy())]
# Each makes a source over the memory of an ndarray.
SOURCES: dict[str, Callable[[np.ndarray], Any]] = {
    "ndarray": lambda array: array,
    "tensor": of("torch")(lambda array: torch.from_numpy(array)),
    "buffer": memoryview,
    "Tensor": dlbridge.asdlpack,
}
WAYS: dict[str, Callable[[Any, str], Any]] = {
    "convert": dlbridge.convert,
    "convert_tree": lambda source, to: dlbridge.convert_tree({"x": [source]}, to)["x"][0],
    "accepts": lambda source, to: dlbridge.accepts(to)(lambda x: x)(source),
}

each_target = pytest.mark.parametrize(("target", "read"), params(TARGETS), ids=[name for name, _ in TARGETS])


def aligned(count):
    """An ndarray at an address that JAX can share."""
    memory = np.zeros(4 * count + 64, "u1")
    start = -memory.ctypes.data % 64
    return memory[start:start + 4 * count].view("float32")


@each_target
@pytest.mark.parametrize("make", params(SOURCES))
@pytest.mark.parametrize("way", params(WAYS))
def test_a_buffer_that_is_used_again_changes_nothing(way, make, target, read):
    changed = []
    for size in SIZES:
        buffer = np.zeros(size, "float32")
        result = way(make(buffer), target)
        buffer[:] = 1
        if read(result).any():
            changed.append(size)
    assert changed == []


@each_target
def test_a_bytearray_too(target, read):
    buffer = bytearray(64)
    result = dlbridge.convert(buffer, target)
    buffer[:] = bytes([1]) * 64
    assert not read(result).any()


@each_target
def test_on_a_promise_memory_is_shared(target, read):
    source = aligned(16)
    result = dlbridge.convert(source, target, readonly="share", copy=False)
    assert read(result).ctypes.data == source.ctypes.data


@each_target
@pytest.mark.parametrize("offset", [0, 1])
def test_no_address_decides_what_is_refused(offset, target, read):
    source = aligned(17)[offset:]
    with pytest.raises(dlbridge.CopyRequiredError, match=f'writable.*{target} must not change.*readonly="share"'):
        dlbridge.convert(source, target, copy=False)
    with pytest.raises(dlbridge.ConversionError, match='readonly "error": the memory is writable'):
        dlbridge.convert(source, target, readonly="error")
    plan = dlbridge.explain(source, target)
    assert (plan.action, plan.reason) == ("copy", f"memory is writable, and the arrays of {target} must not change")


@pytest.mark.needs("jax")
def test_what_jax_gives_stays_read_only():
    made = dlbridge.convert(dlbridge.convert(aligned(16), "jax"), "numpy")
    assert not made.flags.writeable
    assert np.asarray(dlbridge.convert(made, "jax", copy=False)).ctypes.data == made.ctypes.data


@each_target
def test_memory_without_elements_is_shared(target, read):
    assert read(dlbridge.convert(np.zeros(0, "float32"), target, copy=False)).size == 0


# ---- memory that no other code can write to --------------------------------------------------------------------------

def unpickled():
    """At an address that JAX can share. The others are kept meanwhile, or the same address would come again."""
    text, others = pickle.dumps(dlbridge.asdlpack(np.ones(16, "float32"))), []
    while not others or others[-1].data_ptr % 64:
        others.append(pickle.loads(text))
    return others.pop()


ALONE: dict[str, Callable[[], Any]] = {
    "unpickled": unpickled,
    "copied": lambda: dlbridge.asdlpack(np.ones(16, "float32"), copy=True),
    "swapped": lambda: dlbridge.asdlpack(np.ones(16, ">f4")),
}
# Each gives the memory to other code as well. What it returns is kept.
HOLDERS: dict[str, Callable[[dlbridge.Tensor], Any]] = {
    "memoryview": memoryview,
    "ndarray": np.asarray,
    "torch": of("torch")(torch.from_dlpack),
    "capsule": lambda tensor: tensor.__dlpack__(max_version=(1, 0)),
    "legacy capsule": lambda tensor: tensor.__dlpack__(),
    "__array_interface__": lambda tensor: tensor.__array_interface__,
    "__array_struct__": lambda tensor: tensor.__array_struct__,
    "Tensor": lambda tensor: dlbridge.asdlpack(tensor, readonly="share"),
}


@each_target
@pytest.mark.needs("a GIL")
@pytest.mark.parametrize("make", ALONE.values(), ids=ALONE)
def test_a_tensor_gives_memory_away_that_it_has_alone(make, target, read):
    tensor = make()
    plan = dlbridge.explain(tensor, target, copy=False)
    assert (plan.action, tensor.readonly) == ("share", False)
    result = dlbridge.convert(tensor, target, copy=False)
    assert read(result).ctypes.data == tensor.data_ptr
    assert tensor.readonly
    assert memoryview(tensor).readonly
    assert not dlbridge.convert(tensor, "numpy").flags.writeable


@each_target
@pytest.mark.parametrize("hold", params(HOLDERS))
def test_a_tensor_keeps_memory_that_other_code_has_too(hold, target, read):
    tensor = unpickled()
    held = hold(tensor)
    result = dlbridge.convert(tensor, target)
    assert read(result).ctypes.data != tensor.data_ptr
    assert not tensor.readonly
    del held


@each_target
@pytest.mark.needs("a GIL")
def test_a_view_that_is_gone_holds_nothing(target, read):
    tensor = unpickled()
    with memoryview(tensor) as view:
        view[0] = 2
    result = dlbridge.convert(tensor, target, copy=False)
    assert read(result)[0] == 2


@each_target
def test_a_copy_that_a_producer_made_is_not_copied_again(target, read):
    class Producer:
        """Flags what it gives as a copy, which is then the consumer's alone (DLPack 1.3)."""

        def __dlpack__(self, **keywords):
            return dlbridge.asdlpack(np.ones(16, "float32")).__dlpack__(max_version=(1, 0), copy=True)

        def __dlpack_device__(self):
            return (1, 0)

    assert dlbridge.explain(Producer(), target).action == "share"


@pytest.mark.needs("jax")
def test_jaxs_own_copy_is_one_while_a_function_is_traced_too():
    import jax

    from dlbridge.libraries.jax import LIBRARY

    array = jax.numpy.arange(3.0)
    copies = [LIBRARY.copier.value(array, None)]
    jax.jit(lambda: copies.append(LIBRARY.copier.value(array, None)))()
    for copy in copies:
        assert isinstance(copy, jax.Array)
        assert copy.tolist() == [0, 1, 2]
        assert copy.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
