"""Memory lives as long as the last consumer, and is let go once: in any order, from any thread, until the very end."""

import array
import contextlib
import ctypes
import gc
import mmap
import os
import sys
import threading
import tracemalloc
import weakref
from multiprocessing import shared_memory

import numpy as np
import pytest
from support.child import run_in_child
from support.children import in_child
from support.optional import of, params, product

import dlbridge
from dlbridge.testing import abi
from dlbridge.testing.producers import (
    ArrayInterface,
    ArrayStruct,
    Producer,
    capsule_pointer,
    rename_capsule,
)

pytestmark = pytest.mark.quick

TARGETS = ("numpy", "torch", "jax", "memoryview", "dlpack", "dlbridge")
SHARING = ("numpy", "torch", "memoryview", "dlpack", "dlbridge")    # JAX copies what is not aligned to 64 bytes


@pytest.fixture(autouse=True, scope="module")
def targets_are_loaded():
    for target in TARGETS:
        with contextlib.suppress(dlbridge.MissingLibraryError):
            dlbridge.convert(np.zeros(2, np.float32), target)


def aligned(count, dtype=np.float32):
    """Memory that JAX can share too."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start:start + count * np.dtype(dtype).itemsize].view(dtype)


# ---- a buffer stays exported -----------------------------------------------------------------------------------------

def open_bytearray(stack):
    memory = bytearray(64)
    return memory, memory, lambda: memory.extend(b"more"), BufferError


def open_array(stack):
    memory = array.array("f", range(16))
    return memory, memory, lambda: memory.append(1.0), BufferError


def open_mmap(stack):
    memory = mmap.mmap(-1, 4096)
    return memory, memory, memory.close, BufferError


def open_memoryview(stack):
    memory = memoryview(bytearray(64))
    return memory, memory, memory.release, BufferError


def open_shared_memory(stack):
    memory = shared_memory.SharedMemory(create=True, size=64)
    stack.callback(memory.unlink)
    return memory.buf, memory, memory.close, BufferError


BUFFERS = [open_bytearray, open_array, open_mmap, open_memoryview, open_shared_memory]


@pytest.mark.parametrize("target", params(target for target in SHARING if target != "memoryview"))
@pytest.mark.parametrize("opened", BUFFERS, ids=lambda function: function.__name__.removeprefix("open_"))
def test_buffer_is_pinned_while_a_result_lives(opened, target):
    with contextlib.ExitStack() as stack:
        source, owner, change, error = opened(stack)
        result = dlbridge.convert(source, target)
        with pytest.raises(error):
            change()
        del result, source
        change()
        del owner


def test_cycle_through_the_base_of_an_array_over_a_buffer_is_collected():
    class Holder(bytearray):
        pass

    holder = Holder(8)
    reference = weakref.ref(holder)
    holder.base = dlbridge.convert(holder, "numpy").base
    del holder
    gc.collect()
    assert reference() is None


def test_buffer_is_pinned_while_a_memoryview_of_it_lives():
    memory = bytearray(64)
    result = dlbridge.convert(memory, "memoryview")
    with pytest.raises(BufferError):
        memory.extend(b"more")
    result.release()
    del result
    memory.extend(b"more")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("opened", BUFFERS, ids=lambda function: function.__name__.removeprefix("open_"))
def test_buffer_is_free_at_once_after_a_copy(opened):
    with contextlib.ExitStack() as stack:
        source, owner, change, _ = opened(stack)
        result = dlbridge.convert(source, "torch", copy=True)
        del source
        change()
        assert result.numel() > 0
        del owner


@pytest.mark.needs("torch")
def test_buffer_is_free_at_once_after_a_copy_that_was_needed():
    memory = bytearray(range(8))
    result = dlbridge.convert(memoryview(memory)[::-1], "torch")
    memory.extend(b"more")
    assert result.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.needs("torch")
def test_buffer_is_free_after_a_refusal():
    memory = bytearray(8)
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(memoryview(memory)[::-1], "torch", copy=False)
    memory.extend(b"more")


@pytest.mark.needs("torch")
def test_last_of_several_consumers_ends_it():
    memory = bytearray(8)
    tensor = dlbridge.asdlpack(memory)
    results = [tensor, dlbridge.convert(tensor, "numpy"), dlbridge.convert(tensor, "torch"), memoryview(tensor)]
    del tensor
    while results:
        with pytest.raises(BufferError):
            memory.extend(b"more")
        results.pop(0)
    memory.extend(b"more")


# ---- owners ----------------------------------------------------------------------------------------------------------

def numpy_owner():
    return aligned(6)


@of("torch")
def torch_owner():
    import torch

    return torch.zeros(6)


@of("jax")
def jax_owner():
    import jax.numpy

    return jax.numpy.arange(6.0, dtype="float32")


def tensor_owner():
    return dlbridge.asdlpack(aligned(6))


OWNERS = [numpy_owner, torch_owner, jax_owner, tensor_owner]
OPTIONS = [{}, {"copy": True}, {"copy": False}, {"readonly": "share"}, {"readonly": "error"}]


@pytest.mark.parametrize("target", params(TARGETS))
@pytest.mark.parametrize("make", params(OWNERS), ids=lambda function: function.__name__.removesuffix("_owner"))
def test_owner_has_as_many_references_as_before(make, target):
    for options in OPTIONS:
        assert references_added(make(), target, options) == 0, options


def references_added(owner, target, options):
    with contextlib.suppress(dlbridge.DLBridgeError):
        dlbridge.convert(owner, target, **options)      # what a library caches by its first use
    gc.collect()
    before = sys.getrefcount(owner)
    for _ in range(5):
        with contextlib.suppress(dlbridge.DLBridgeError):
            dlbridge.convert(owner, target, **options)
    gc.collect()
    return sys.getrefcount(owner) - before


@pytest.mark.parametrize("target", params(SHARING))
def test_result_keeps_the_owner_alive(target):
    class Array(np.ndarray):
        """A type whose instances can be watched."""

    owner = np.arange(6.0).view(Array)
    watched = weakref.ref(owner)
    result = dlbridge.convert(owner, target)
    del owner
    gc.collect()
    assert watched() is not None
    del result
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("holder", [ArrayInterface, ArrayStruct])
@pytest.mark.parametrize("target", params(SHARING))
def test_result_keeps_the_holder_of_an_interface_alive(target, holder):
    owner = holder()
    watched = weakref.ref(owner)
    result = dlbridge.convert(owner, target)
    if holder is ArrayStruct:
        owner.forget()
    del owner
    gc.collect()
    assert watched() is not None
    del result
    gc.collect()
    assert watched() is None


@pytest.mark.needs("torch")
def test_capsule_of_an_array_struct_is_kept_and_dropped_once():
    holder = ArrayStruct()
    result = dlbridge.convert(holder, "torch")
    holder.forget()
    assert holder.deleted == 0
    del result
    assert holder.deleted == 1


# ---- deleters, exactly once ------------------------------------------------------------------------------------------

class RefusingImporter:
    @staticmethod
    def from_dlpack(x):
        raise ValueError("not today")


class FailingImporter:
    """Takes the capsule, and then fails."""

    @staticmethod
    def from_dlpack(x):
        np.from_dlpack(x)
        raise ValueError("too late")


class CapsuleLosingImporter:
    """Asks for a capsule that it never consumes."""

    @staticmethod
    def from_dlpack(x):
        x.__dlpack__(max_version=(1, 0))
        raise ValueError("lost it")


FAILURES = {
    "target lacks the dtype": ({"code": 4, "bits": 16}, "memoryview", {}),
    "target has other devices": ({"device_type": 8}, "numpy", {}),
    "wrong device asked for": ({}, "numpy", {"device": "cuda:0"}),
    "copy=False and read-only": ({"flags": abi.READ_ONLY}, "torch", {"copy": False}),
    "readonly=error": ({"flags": abi.READ_ONLY}, "torch", {"readonly": "error"}),
    "copy=False and negative strides": ({"ndim": 1, "shape": (1,), "strides": (-1,)}, "torch", {"copy": False}),
    "importer refuses": ({}, RefusingImporter(), {}),
    "importer fails after it took the capsule": ({}, FailingImporter(), {}),
    "importer loses the capsule": ({}, CapsuleLosingImporter(), {}),
    "no memory for the copy": ({"shape": (2**44, 1), "strides": (0, 0), "ndim": 2}, "numpy", {"copy": True}),
    "torch lacks the dtype": ({"code": 0, "bits": 4, "ndim": 1, "shape": (4,), "strides": (1,)}, "torch", {}),
}


@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
@pytest.mark.parametrize(("fields", "target", "options"), params(FAILURES))
def test_deleter_runs_once_when_a_conversion_fails(fields, target, options, versioned):
    if not versioned and "flags" in fields:
        fields = {name: value for name, value in fields.items() if name != "flags"}
    producer = Producer(versioned=versioned, **fields)
    with contextlib.suppress(dlbridge.DLBridgeError, MemoryError):
        dlbridge.convert(producer, target, **options)
    producer.forget()
    gc.collect()
    assert producer.deleted == producer.exported == 1


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("readonly", [0, abi.READ_ONLY], ids=["writable", "read-only"])
@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
@pytest.mark.parametrize("target", params(TARGETS))
def test_deleter_runs_once_when_a_conversion_succeeds(target, versioned, readonly, copy):
    producer = Producer(versioned=versioned, flags=readonly)
    result = dlbridge.convert(producer, target, copy=copy)
    if copy or target == "jax" or (readonly and versioned and target in ("torch", "dlpack")):
        assert producer.deleted == 1 or target == "jax", "a copy needs the memory no longer"
    else:
        assert producer.deleted == 0
    del result
    gc.collect()
    assert producer.deleted == 1
    producer.forget()
    assert producer.deleted == 1


@pytest.mark.needs("torch")
def test_deleter_runs_once_with_a_chain_of_libraries():
    producer = Producer(np.zeros(64, np.float32))
    result = producer
    for target in ("torch", "numpy", "dlbridge", "memoryview", "numpy", "dlpack", "torch", "dlpack", "numpy"):
        result = dlbridge.convert(result, target)
    assert result.ctypes.data == producer.array.ctypes.data
    assert producer.deleted == 0
    del result
    gc.collect()
    assert producer.deleted == 1


def give(value, _):
    return value


@pytest.mark.parametrize("target", params(SHARING))
def test_exception_on_its_way_survives_a_deleter_in_python(target):
    """The result dies on the evaluation stack, while the exception unwinds it."""

    def unwind():
        producer = Producer()
        try:
            give(dlbridge.convert(producer, target), 1 / 0)
        except ZeroDivisionError:
            return producer.deleted
        return "another exception, or none"

    outcome = run_in_child(unwind)
    assert outcome.result() == 1
    assert outcome.stderr == ""


@pytest.mark.parametrize("target", params(SHARING))
@pytest.mark.parametrize("make", params(OWNERS), ids=lambda function: function.__name__.removesuffix("_owner"))
def test_exception_on_its_way_survives_an_owner_that_dies(make, target):
    class Finalizer:
        ran = 0

        def __del__(self):
            type(self).ran += 1
            with contextlib.suppress(KeyError):
                {}["a lookup that fails, and must not be seen"]

    class Array(np.ndarray):
        pass

    def owner():
        made = make()
        if isinstance(made, np.ndarray):
            made = made.view(Array)
            made.finalizer = Finalizer()
        return made

    with pytest.raises(ZeroDivisionError):
        give(dlbridge.convert(owner(), target, readonly="share"), 1 / 0)
    gc.collect()
    assert Finalizer.ran == (make is numpy_owner)


# ---- threads ---------------------------------------------------------------------------------------------------------

def in_thread(function):
    """Call in another thread, and hand on what it raises."""
    errors = []

    def call():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("target", params(SHARING))
def test_result_that_dies_in_another_thread(target):
    producer = Producer()
    results = [dlbridge.convert(producer, target)]
    in_thread(results.clear)
    assert producer.deleted == 1


@pytest.mark.parametrize("name", [abi.VERSIONED_NAME, abi.LEGACY_NAME], ids=["versioned", "legacy"])
@pytest.mark.parametrize("thread", [False, True], ids=["this thread", "another thread"])
def test_deleter_called_without_the_gil(name, thread):
    """As a C++ consumer does it: the address out of the capsule, called while other threads may run Python."""
    memory = bytearray(8)
    versioned = name == abi.VERSIONED_NAME
    capsule = dlbridge.to_dlpack(memory, max_version=(1, 0) if versioned else None)
    address = capsule_pointer(capsule, name)
    struct = (abi.DLManagedTensorVersioned if versioned else abi.DLManagedTensor).from_address(address)
    delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.cast(struct.deleter, ctypes.c_void_p).value)
    used = ctypes.c_char_p(b"used_" + name)
    rename_capsule(capsule, used)
    with pytest.raises(BufferError):
        memory.extend(b"more")
    if thread:
        in_thread(lambda: delete(address))
    else:
        delete(address)
    memory.extend(b"more")
    del capsule
    memory.extend(b"more")


def race(count, function):
    """Call in ``count`` threads that start together; what each returned or raised."""
    barrier = threading.Barrier(count)
    outcomes = []

    def call():
        barrier.wait()
        try:
            outcomes.append(function())
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
def test_one_thread_wins_a_capsule(versioned):
    for _ in range(50):
        producer = Producer(versioned=versioned)
        capsule = producer.capsule()
        outcomes = race(8, lambda capsule=capsule: dlbridge.convert(capsule, "numpy"))
        winners = [outcome for outcome in outcomes if isinstance(outcome, np.ndarray)]
        losers = [outcome for outcome in outcomes if isinstance(outcome, dlbridge.ConversionError)]
        assert (len(winners), len(losers)) == (1, 7)
        assert all("consumed already" in str(error) for error in losers)
        assert producer.deleted == 0
        del winners, outcomes, losers, capsule
        gc.collect()
        assert producer.deleted == 1


@pytest.mark.parametrize("target", params(SHARING))
def test_threads_share_a_tensor(target):
    memory = bytearray(range(64))
    tensor = dlbridge.asdlpack(memory)

    def convert_often(tensor=tensor):
        for _ in range(300):
            dlbridge.convert(tensor, target)
        return dlbridge.convert(dlbridge.convert(tensor, target), "numpy").sum()

    assert race(8, convert_often) == [sum(range(64))] * 8
    del tensor, convert_often
    gc.collect()
    memory.extend(b"more")


# ---- the end of the interpreter --------------------------------------------------------------------------------------

# Not ours: torch 2.13 aborts where a daemon thread, or the last garbage collection, drops one of its tensors, and JAX
# 0.10 where a daemon thread does. A finalizer may run so late that no Python code can import, as that of both does.

@pytest.mark.needs("torch", "jax")
@in_child(says="", warnings="default")
def test_python_is_left_with_results_in_the_globals_of_modules():
    import sys

    from lifetime.results import convert_all

    kept = convert_all()
    sys.kept = convert_all()        # the module that goes last
    raise SystemExit(0)


@pytest.mark.needs("torch", "jax")
@in_child(says="", warnings="default")
def test_python_ends_beside_daemon_threads():
    import threading

    from lifetime.results import convert_all

    barrier = threading.Barrier(3)

    def work():
        kept = convert_all({"torch", "jax"})
        barrier.wait()
        while True:
            kept[:] = convert_all({"torch", "jax"})

    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    barrier.wait()


@pytest.mark.needs("torch", "jax")
@in_child(says="converted\n", warnings="default")
def test_python_ends_with_a_finalizer_that_converts():
    import os

    from lifetime.results import MAKERS, TARGETS, convert_all

    import dlbridge

    sources = [MAKERS[name]() for name in ("numpy", "read-only", "buffer")]
    others = [target for target in TARGETS if target != "torch"]
    convert_all()           # so that nothing is left to be imported

    class Late:             # its finalizer has what it needs: modules and builtins are empty by then
        def __del__(self, convert=dlbridge.convert, sources=sources, targets=others, write=os.write):
            for source in sources:
                for target in targets:
                    self.made = convert(source, target)
            write(1, b"converted\n")

    late = Late()
    late.itself = late


# ---- ten thousand times ----------------------------------------------------------------------------------------------

def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


SOURCES = {
    "numpy": lambda: aligned(1024),
    "read-only": lambda: np.broadcast_to(np.float32(1), (32, 32)),
    "torch": of("torch")(lambda: __import__("torch").zeros(1024)),
    "jax": of("jax")(lambda: __import__("jax").numpy.zeros(1024, "float32")),
    "buffer": lambda: bytearray(4096),
    "array_interface": lambda: ArrayInterface(aligned(1024)),
    "tensor": lambda: dlbridge.asdlpack(aligned(1024)),
    "big-endian": lambda: np.zeros(1024, ">f4"),
    "refused": lambda: np.zeros(8, "M8[s]"),
}


@pytest.mark.needs("plain memory")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="this system does not tell the resident size")
@pytest.mark.parametrize(("make", "target"), params(product(SOURCES.values(), TARGETS)))
def test_ten_thousand_conversions_leave_nothing(make, target):
    made = make()
    times = 10_000

    def convert_often(times):
        for _ in range(times):
            with contextlib.suppress(dlbridge.DLBridgeError):
                dlbridge.convert(made, target)

    convert_often(200)
    gc.collect()
    references = sys.getrefcount(made)
    tracemalloc.start()
    try:
        convert_often(100)
        for _ in range(3):
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            convert_often(500)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
            if after - before < 500 * 16:
                break
        else:
            pytest.fail("an object for each conversion")
    finally:
        tracemalloc.stop()
    # Pools of the libraries grow once; what is lost each time grows each time.
    for _ in range(3):
        resident = resident_bytes()
        convert_often(times)
        gc.collect()
        grown = resident_bytes() - resident
        if grown < times * 64:
            break
    assert grown < times * 64, "less than the smallest block for each conversion"
    assert sys.getrefcount(made) == references


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["accepted", "refused"])
def test_thousand_producers_leave_nothing(kind):
    from dlbridge.testing import producers

    gc.collect()
    alive = len(producers._alive)
    fields = {"shape": (-1, 3)} if kind == "refused" else {}
    counted = deleted = 0
    for _ in range(1000):
        producer = Producer(**fields)
        with contextlib.suppress(dlbridge.DLBridgeError):
            dlbridge.convert(producer, "torch")
        producer.forget()
        counted += producer.exported
        deleted += producer.deleted
    assert counted == deleted == 1000
    assert len(producers._alive) == alive
