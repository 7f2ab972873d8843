"""Arrays that must not change share read-only memory only where nobody can write to it: by who keeps the memory."""

import mmap
import os
import pickle
import tempfile
import types

import numpy as np
import pyarrow
import pytest
from support.optional import of, params

import dlbridge

COUNT = 64
TO = params(["jax", "pyarrow"])
IMMUTABLE = pytest.mark.parametrize("to", TO)


def elements():
    """Writable, and aligned for JAX."""
    room = np.zeros(4 * COUNT + 64, "u1")
    start = -room.ctypes.data % 64
    return room[start:start + 4 * COUNT].view("f4")


def read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view


# ---- memory that somebody can write to -------------------------------------------------------------------------------

class Interface:
    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__ | {"data": (self.array.ctypes.data, True)}


class Text(Interface, bytes):
    """Constant by itself, but its interface is of other memory."""

    def __new__(cls, array):
        return bytes.__new__(cls, 8)


class Exported(Interface):
    """A versioned capsule with the flag."""

    def __dlpack__(self, **keywords):
        return dlbridge.to_dlpack(read_only(self.array), max_version=(1, 0))

    def __dlpack_device__(self):
        return 1, 0


def registered(array):
    kind = type("Registered", (), {"array": array})
    dlbridge.register_source(kind, lambda source: source.array, readonly=True)
    return kind()


# Each is made of writable memory.
VIEWS = {
    "a view": read_only,
    "a view of a view": lambda array: read_only(read_only(array)[:]),
    "repeated": lambda array: np.broadcast_to(array, (1, COUNT)),
    "windows": lambda array: np.lib.stride_tricks.sliding_window_view(array, COUNT),
    "strided": lambda array: np.lib.stride_tricks.as_strided(array, (COUNT,), (4,), writeable=False),
    "a subclass": lambda array: read_only(array.view(np.recarray)),
    "a memoryview": lambda array: memoryview(array).toreadonly(),
    "a memoryview of a memoryview": lambda array: memoryview(memoryview(array).toreadonly()),
    "an ndarray over a memoryview": lambda array: np.asarray(memoryview(array).toreadonly()),
    "a pickle's buffer": lambda array: pickle.PickleBuffer(memoryview(array).toreadonly()),
    "an interface": Interface,
    "an interface of bytes": Text,
    "a producer": Exported,
    "a capsule": lambda array: dlbridge.to_dlpack(read_only(array), max_version=(1, 0)),
    "a Tensor": lambda array: dlbridge.asdlpack(read_only(array)),
    "a Tensor of a Tensor": lambda array: dlbridge.from_dlpack(dlbridge.asdlpack(read_only(array))),
    "an ndarray over a Tensor": lambda array: np.asarray(dlbridge.asdlpack(read_only(array))),
    "an ndarray over a block": lambda array: dlbridge.convert(Interface(array), "numpy"),
    "what NumPy imported": lambda array: np.from_dlpack(Exported(array)),
    "an address": lambda array: dlbridge.from_pointer(
        array.ctypes.data, (COUNT,), "float32", readonly=True, owner=array),
    "an address that bytes keep": lambda array: dlbridge.from_pointer(
        array.ctypes.data, (COUNT,), "float32", readonly=True, owner=bytes(8)),
    "a registered source": registered,
    "a buffer of Arrow": of("pyarrow")(lambda array: pyarrow.py_buffer(read_only(array))),
    "an ndarray over a buffer of Arrow": of("pyarrow")(
        lambda array: np.frombuffer(pyarrow.py_buffer(read_only(array)), "f4")),
}


@IMMUTABLE
@pytest.mark.parametrize("view", params(VIEWS))
def test_a_write_to_the_owner_changes_no_immutable_array(view, to):
    array = elements()
    result = dlbridge.convert(view(array), to)
    array.view("u1")[:] = 7
    assert not np.asarray(result).any()


@IMMUTABLE
@pytest.mark.parametrize("view", params(VIEWS))
def test_the_policy_decides_about_memory_that_somebody_can_write_to(view, to):
    array = elements()
    plan = dlbridge.explain(view(array), to)
    assert plan.action == "copy"
    with pytest.raises(dlbridge.ConversionError, match=r"the arrays of .* must not change"):
        dlbridge.convert(view(array), to, readonly="error")
    with pytest.raises(dlbridge.CopyRequiredError) as caught:
        dlbridge.convert(view(array), to, copy=False)
    assert 'pass readonly="share"' in caught.value.hint
    shared = dlbridge.convert(view(array), to, copy=False, readonly="share")
    assert not np.asarray(shared).any()
    array.view("u1")[:] = 7
    assert np.asarray(shared).all()


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(("make", "who"), [
    (lambda: read_only(elements()), "numpy.ndarray"),
    (lambda: memoryview(bytearray(COUNT)).toreadonly(), "bytearray"),
    (lambda: dlbridge.asdlpack(memoryview(bytearray(COUNT)).toreadonly()), "bytearray"),
    (lambda: read_only(elements().view(np.recarray)), "numpy.rec.recarray"),
    (lambda: memoryview(dlbridge.asdlpack(elements())).toreadonly(), "dlbridge.Tensor"),
    (lambda: np.from_dlpack(Exported(elements())), "its producer"),
])
def test_explain_says_who_can_write(make, who):
    assert f"somebody can still write to it ({who})" in dlbridge.explain(make(), "pyarrow").reason


@pytest.mark.needs("pyarrow", "jax")
def test_a_tensor_of_arrow_lies_on_any_memory():
    array = elements()
    result = dlbridge.convert(pyarrow.Tensor.from_numpy(read_only(array)), "jax")
    array[:] = 7
    assert not np.asarray(result).any()


@pytest.mark.needs("pyarrow")
def test_an_array_of_arrow_over_a_tensor_is_a_copy_too():
    array = elements()
    given = pyarrow.array(dlbridge.asdlpack(read_only(array)))
    promised = pyarrow.array(dlbridge.asdlpack(read_only(array), readonly="share"))
    array[:] = 7
    assert (given[0].as_py(), promised[0].as_py()) == (0, 7)
    with pytest.raises(dlbridge.ConversionError, match="somebody can still write"):
        pyarrow.array(dlbridge.asdlpack(read_only(array), readonly="error"))


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("where", ["tmpfs", "memfd"])
def test_a_file_in_memory_is_memory_of_other_programs(where):
    on_tmpfs = where == "tmpfs"
    with tempfile.TemporaryFile(dir="/dev/shm") if on_tmpfs else os.fdopen(os.memfd_create(where), "r+b") as file:
        file.write(bytes(4096))
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert dlbridge.explain(mapped, "pyarrow").action == "copy"
        result = dlbridge.convert(np.frombuffer(mapped, "f4"), "pyarrow")
        os.pwrite(file.fileno(), b"\1" * 4096, 0)
        assert np.frombuffer(mapped, "f4").all()
        assert not np.asarray(result).any()


# ---- constant memory -------------------------------------------------------------------------------------------------

def frozen():
    array = np.zeros(4 * COUNT)
    array.flags.writeable = False
    return array


def in_bytes():
    return bytes(range(COUNT))


@of("jax")
def of_jax():
    import jax.numpy

    return jax.numpy.arange(4.0 * COUNT, dtype="float32")


@of("pyarrow")
def of_arrow():
    return pyarrow.array(np.arange(4.0 * COUNT))


def mapped_file():
    """A module of Python's own, which is on a disk."""
    with open(os.__file__, "rb") as file:
        return mmap.mmap(file.fileno(), 4 * COUNT, access=mmap.ACCESS_READ)


OWNERS = {
    "bytes": in_bytes,
    "a subclass of bytes": lambda: type("Text", (bytes,), {})(bytes(COUNT)),
    "a frozen array": frozen,
    "JAX": of_jax,
    "Arrow": of_arrow,
    "a file": mapped_file,
    "an unpickled Tensor": lambda: pickle.loads(pickle.dumps(dlbridge.asdlpack(frozen()), protocol=5)),
    "an interface over bytes": lambda: types.SimpleNamespace(
        __array_interface__={"shape": (COUNT,), "typestr": "<f4", "version": 3, "data": bytes(4 * COUNT)}),
}
THROUGH = {
    "itself": lambda owner: owner,
    "a slice": lambda owner: as_array(owner)[16:],
    "a memoryview": lambda owner: memoryview(as_array(owner)),
    "an ndarray over a memoryview": lambda owner: np.asarray(memoryview(as_array(owner))),
    "a Tensor": dlbridge.asdlpack,
    "a Tensor of a Tensor": lambda owner: dlbridge.from_dlpack(dlbridge.asdlpack(owner)),
    "an ndarray over a Tensor": lambda owner: np.asarray(dlbridge.asdlpack(owner)),
    "an ndarray of convert()": lambda owner: dlbridge.convert(owner, "numpy"),
    "a capsule": lambda owner: dlbridge.to_dlpack(owner, max_version=(1, 0)),
}


def as_array(owner):
    return np.frombuffer(owner, "u1") if isinstance(owner, bytes) else np.asarray(owner)    # not a text


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("through", THROUGH)
@pytest.mark.parametrize("owner", params(OWNERS))
def test_constant_memory_is_shared_through_what_wraps_it(owner, through):
    source = THROUGH[through](owner())
    assert dlbridge.explain(source, "pyarrow").action in ("share", "return")
    dlbridge.convert(source, "pyarrow", copy=False)


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("name", ["a b", "a (deleted)", "a\u2028ff-fe r--p", "a\nb", "a\rb", "a\r\nb"])
def test_a_mapped_file_may_have_any_name(name, tmp_path):
    (tmp_path / name).write_bytes(bytes(4096))
    mapped = np.memmap(tmp_path / name, "f4", "r")
    assert dlbridge.explain(mapped, "pyarrow").action in ("share", "copy")      # the folder may be in memory
    assert dlbridge.explain(mapped_file(), "pyarrow").action == "share"


@pytest.mark.needs("jax")
@pytest.mark.parametrize("through", THROUGH)
def test_memory_of_jax_comes_back_to_it(through):
    array = of_jax()
    begin = array.unsafe_buffer_pointer()
    back = dlbridge.convert(THROUGH[through](array), "jax", copy=False)
    assert back.unsafe_buffer_pointer() in (begin, begin + 16 * array.itemsize)


@IMMUTABLE
def test_a_copy_of_dlbridge_that_nobody_can_write_to_is_copied_no_more(to):
    tensor = dlbridge.asdlpack(elements(), copy=True)
    dlbridge.convert(tensor, to)
    assert tensor.readonly
    assert dlbridge.explain(tensor, to).action == "share"
    assert dlbridge.explain(np.asarray(tensor), to).action == "share"


@pytest.mark.needs("pyarrow")
def test_memory_that_went_to_and_fro_for_long_is_copied():
    """What it comes from is not looked for any further; in time it ends all the same."""
    source = in_bytes()
    for _ in range(1000):
        source = np.asarray(dlbridge.asdlpack(source if type(source) is bytes else memoryview(source)))
    assert dlbridge.explain(source, "pyarrow").action == "copy"
