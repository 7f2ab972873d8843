"""Legacy capsules do not say whether their memory may be written: whoever made one, or another protocol, says it."""

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import dlpack as pydlpack
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.children import in_child
from support.exporters import Proxy
from support.optional import marked
from support.producers import LegacyProducer

import dlbridge
from dlbridge.testing.producers import OldProducer

pytestmark = pytest.mark.quick


class Delegate(LegacyProducer):
    """Hands ``__dlpack__`` on, and says by ``__array_interface__`` what it was told to say."""

    def __init__(self, base, interface):
        super().__init__(base)
        self.__array_interface__ = interface


class Exporting:
    """Of an object with a buffer: a legacy capsule over the same memory."""

    def __dlpack__(self, stream=None):
        return OldProducer(np.frombuffer(self, "u1")).__dlpack__()


class Writable(Exporting, bytearray):
    """Its buffer says that it may be written."""


class Constant(Exporting, bytes):
    """Its buffer says that it is read-only."""


# Each gives the array's legacy capsule, and has a type that says nothing of the array.
WAYS: dict[str, Callable[[Any], Any]] = {
    "a class that delegates": LegacyProducer,
    "a delegate's delegate": lambda array: LegacyProducer(LegacyProducer(array)),
    "a delegate's proxy": lambda array: Proxy(LegacyProducer(array)),
    "the capsule": lambda array: array.__dlpack__(),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.mark.needs("torch", "jax")
@each_way
def test_immutable_memory_is_known_by_who_frees_it(way):
    array = jnp.arange(3.0)
    dlbridge.convert(way(array), "torch").zero_()
    assert not dlbridge.convert(way(array), "numpy").flags.writeable
    assert dlbridge.asdlpack(way(array)).readonly
    np.testing.assert_array_equal(array, [0, 1, 2])
    address = array.unsafe_buffer_pointer()
    assert dlbridge.convert(way(array), "torch", readonly="share").data_ptr() == address


@pytest.mark.needs("torch")
@each_way
@pytest.mark.parametrize("make", [marked(torch.zeros, "torch"), np.zeros])
def test_writable_memory_is_known_by_who_frees_it(make, way):
    array = make(4)
    tensor = dlbridge.convert(way(array), "torch", copy=False)
    tensor[1] = 1
    dlbridge.convert(way(array), "numpy")[2] = 2
    assert array.tolist() == [0, 1, 2, 0]


@pytest.mark.needs("jax", "torch")
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_what_jax_exports_by_dlpack_alone_is_immutable(dtype):
    """No buffer has these types, and its capsules have no flags: only what is known of JAX says it."""
    array = jnp.ones(3, dtype)
    assert not dlbridge.convert(array, "numpy").flags.writeable
    assert dlbridge.explain(array, "torch").action == "copy"
    dlbridge.convert(array, "torch").zero_()
    assert array.tolist() == [1, 1, 1]


# ---- exporters that are not known: their deleter is made by ctypes ---------------------------------------------------

UNKNOWN: dict[str, Callable[[OldProducer], Any]] = {"the producer": lambda producer: producer, **WAYS}
each_unknown = pytest.mark.parametrize("way", UNKNOWN.values(), ids=UNKNOWN)


@pytest.mark.needs("torch")
@each_unknown
def test_what_is_unknown_is_shared_and_may_be_written(way):
    """Batches of DALI, of video decoders and of simulators come so, as torch.from_dlpack takes them."""
    producer = OldProducer()
    tensor = dlbridge.convert(way(producer), "torch", copy=False)
    tensor[0, 0] = 1
    dlbridge.convert(way(producer), "numpy", readonly="error")[0, 1] = 2
    assert not dlbridge.asdlpack(way(producer)).readonly
    assert tensor.data_ptr() == producer.array.ctypes.data
    assert producer.array[0, :2].tolist() == [1, 2]


@pytest.mark.needs("jax")
@each_unknown
def test_what_is_unknown_does_not_change_under_an_immutable_array(way):
    producer = OldProducer(np.zeros(1024, "float32"))
    made = [dlbridge.convert(way(producer), "jax"), dlbridge.convert(dlbridge.asdlpack(way(producer)), "jax")]
    producer.array[:] = 1
    assert not any(array.any() for array in made)


# ---- what another protocol of the object says ------------------------------------------------------------------------

def interface_of(array, **entries):
    return {**array.__array_interface__, **entries}


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("entries", "readonly"), [
    (lambda array: {}, False),
    (lambda array: {"data": (array.ctypes.data, True)}, True),
    (lambda array: {"data": (array.ctypes.data + 4, True)}, False),
    (lambda array: {"data": memoryview(array)}, False),
    (lambda array: {"data": None}, False),
], ids=["writable", "read-only", "elsewhere", "a buffer", "nothing"])
def test_an_interface_says_it(entries, readonly):
    producer = OldProducer()
    delegate = Delegate(producer, interface_of(producer.array, **entries(producer.array)))
    plan = dlbridge.explain(delegate, "torch")
    assert (plan.protocol, plan.action) == ("dlpack (legacy)", "copy" if readonly else "share")
    dlbridge.convert(delegate, "torch").fill_(9)
    assert (producer.array[0, 0] == 9) != readonly


@pytest.mark.parametrize(("error", "raised"), [
    (AttributeError, False), (RuntimeError, False), (MemoryError, True), (KeyboardInterrupt, True), (SystemExit, True),
])
def test_an_interface_that_fails_says_nothing(error, raised):
    class Failing(OldProducer):
        @property
        def __array_interface__(self):
            raise error

    producer = Failing(keeps=False)
    with pytest.raises(error) if raised else contextlib.nullcontext():
        assert not dlbridge.asdlpack(producer).readonly
    assert (producer.exported, producer.deleted) == (1, 1)


@pytest.mark.parametrize(("kind", "writable"), [(Writable, True), (Constant, False)])
def test_a_buffer_says_it(kind, writable):
    tensor = dlbridge.asdlpack(kind(b"abc"))
    assert (tensor.protocol, tensor.readonly) == ("dlpack (legacy)", not writable)
    assert dlbridge.convert(kind(b"abc"), "numpy").flags.writeable == writable
    assert dlbridge.convert(Proxy(kind(b"abc")), "numpy").flags.writeable == writable


@pytest.mark.needs("torch")
def test_a_buffer_says_it_behind_a_known_deleter():
    class Text(bytes):
        def __dlpack__(self, stream=None):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")         # that bytes are not writable
                return torch.frombuffer(self, dtype=torch.uint8).__dlpack__()

    text = Text(b"abc")
    dlbridge.convert(text, "torch").zero_()
    assert text == b"abc"


def test_numpy_refuses_to_export_read_only_memory_without_a_flag():
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.raises(BufferError, match="readonly"):
        dlbridge.convert(LegacyProducer(array), "numpy")


# ---- what the user says ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("readonly", "writable"), [(None, True), (False, True), (True, False)])
def test_a_registered_source_says_it(readonly, writable):
    class Frame:
        def __init__(self):
            self.producer = OldProducer()

    dlbridge.register_source(Frame, lambda frame: frame.producer.capsule(), readonly=readonly)
    frame = Frame()
    assert dlbridge.convert(frame, "numpy").flags.writeable == writable
    assert dlbridge.explain(frame, "numpy").readonly != writable
    assert dlbridge.convert(frame, "dlbridge").data_ptr == frame.producer.array.ctypes.data


def test_a_registered_source_knows_it_better():
    class Text:
        data = Constant(b"abc")

    assert not dlbridge.convert(Text.data, "numpy").flags.writeable
    dlbridge.register_source(Text, lambda text: text.data, readonly=False)
    assert dlbridge.convert(Text(), "numpy").flags.writeable


def test_a_registered_source_does_not_overrule_a_flag():
    class Frame:
        array = np.zeros(3)

    Frame.array.flags.writeable = False
    dlbridge.register_source(Frame, lambda frame: frame.array, readonly=False)
    assert not dlbridge.convert(Frame(), "numpy").flags.writeable


def test_a_class_of_builtins_is_not_a_library():
    space: dict[str, Any] = {"LegacyProducer": LegacyProducer}
    exec("class Made(LegacyProducer):\n    def __dlpack__(self, stream=None): return self.base.__dlpack__()", space)
    assert space["Made"].__module__ == "builtins"
    producer = OldProducer()
    made = space["Made"](producer)
    made.__array_interface__ = interface_of(producer.array, data=(producer.array.ctypes.data, True))
    assert dlbridge.asdlpack(made).readonly


# ---- classes that pretend --------------------------------------------------------------------------------------------

@pytest.mark.needs("torch", "jax", "dlpack")
@pytest.mark.parametrize("way", [lambda exporter: exporter, Proxy], ids=["itself", "a proxy"])
def test_a_library_that_exports_the_memory_of_others_is_not_believed(way):
    array, text = jnp.arange(1.0, 4.0), b"abcd"
    dlbridge.convert(way(pydlpack.asdlpack(array)), "torch").zero_()
    dlbridge.convert(way(pydlpack.asdlpack(text)), "torch").zero_()
    assert (array.tolist(), text) == ([1, 2, 3], b"abcd")


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("module", ["torch.more", "jax.more", "pyarrow.more", "xarray.more", "dlpack.more"])
def test_the_deleter_is_asked_before_the_class(module):
    kind = type("Delegate", (), {"__module__": module, "__init__": LegacyProducer.__init__,
                                 "__dlpack__": LegacyProducer.__dlpack__})
    array = jnp.arange(1.0, 4.0)
    dlbridge.convert(kind(array), "torch").zero_()
    assert array.tolist() == [1, 2, 3]


@in_child
def test_a_capsule_that_is_consumed_while_its_deleter_is_looked_up():
    """In a process of its own, since each deleter is looked up once."""
    import numpy
    import pytest

    import dlbridge
    from dlbridge.libraries import library

    class Once:
        def __dlpack__(self, **keywords):
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    def consume(file, find=library.library_with):
        numpy.from_dlpack(Once())       # as another thread may, while this code runs
        return find(file)

    library.library_with = consume
    capsule = numpy.arange(3.0).__dlpack__()
    with pytest.raises(dlbridge.ConversionError, match="was consumed already"):
        dlbridge.convert(capsule, "numpy")
