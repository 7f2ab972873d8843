"""Every way out does what was decided: convert(), capsules, Arrow, pickles, deepcopy, out= and explain()."""

import contextlib
import copy
import itertools
import pickle

import numpy as np
import pytest
from support.optional import params
from support.strided import LAYOUTS

import dlbridge
from dlbridge.testing.producers import Producer

OPENCL, PADDED = 4, 4           # a device type, and a flag
WRITABLE, OR_COPY = 1, 16       # flags of a want
POLICIES = ("copy", "share", "error")
pytestmark = pytest.mark.needs("Cython")


def sources(everything=True):
    """Memory of every layout, writable and read-only; and of elements below a byte, and of a device without streams."""
    for name in LAYOUTS:
        for dtype in ("float32", "bool"):
            array = LAYOUTS[name](dtype)
            frozen = array.view()
            frozen.flags.writeable = False
            yield from (array, frozen)
    swapped = np.arange(4, dtype=">i4")
    yield from (swapped, swapped[::-1], np.zeros(0, "float32")[::2], b"", b"bytes", bytearray(b"bytes"))
    one = np.lib.stride_tricks.as_strided(np.zeros(9), (1, 3), (40, 8))
    yield from (one, one[:, :1].reshape(1), memoryview(b"constant").cast("f"))
    for flags in (0, 1) if everything else ():
        nibbles = np.arange(6, dtype="uint8")
        yield Producer(nibbles, code=1, bits=4, flags=flags | PADDED)
        yield Producer(nibbles, code=1, bits=4, shape=(12,), strides=(1,), flags=flags)
        yield Producer(np.zeros(4, "float32"), device_type=OPENCL, flags=flags)


def outcome(way, source):
    """What a way out did: "share", "copy", or the name of its error. Nothing is said of memory without elements."""
    try:
        address = way()
    except dlbridge.DLBridgeError as error:
        return type(error).__name__
    return None if not source.nbytes else "share" if address == source.data_ptr else "copy"


def disagreements(ways, keywords, decisions=("share", "copy"), everything=True):
    """Where a way out and the decision differ.

    ``ways`` gives a function and the decision of a Tensor and keywords, or None where the Tensor has no such way.
    """
    found = []
    seen = set()
    for source in sources(everything):
        for values in itertools.product(*keywords.values()):
            asked = dict(zip(keywords, values, strict=True))
            tensor = dlbridge.asdlpack(source, readonly=asked.get("readonly", "copy"))
            answer = ways(tensor, **asked)
            if answer is None:
                continue
            way, decided = answer
            done = outcome(way, tensor)
            seen.add(decided)
            if done not in (decided, None) or (done is None and decided not in ("share", "copy")):
                found.append((repr(tensor), asked, done, decided))
    assert seen >= {*decisions}
    return found


def address_of(array):
    return dlbridge.asdlpack(array, readonly="share").data_ptr


KEYWORDS = {"device": (None, "cpu"), "copy": (None, True, False), "readonly": POLICIES}
OF_CONVERT = {**KEYWORDS, "order": (None, "C")}


@pytest.mark.parametrize("target", params(["numpy", "torch", "jax", "memoryview", "dlpack"]))
def test_convert(target, deciding):
    def ways(tensor, **asked):
        return lambda: address_of(dlbridge.convert(tensor, target, **asked)), deciding.for_target(
            tensor, target, *asked.values())

    # torch has no tensors on such a device, and JAX cannot export elements below a byte.
    assert disagreements(ways, OF_CONVERT, everything=target not in ("torch", "jax")) == []


@pytest.mark.parametrize("target", params(["numpy", "torch", "jax", "memoryview", "dlpack"]))
def test_explain(target, deciding):
    for source, values in itertools.product(sources(), itertools.product(*OF_CONVERT.values())):
        tensor = dlbridge.asdlpack(source)
        plan = dlbridge.explain(tensor, target, **dict(zip(OF_CONVERT, values, strict=True)))
        decided = deciding.for_target(tensor, target, *values)
        assert plan.action == (decided if decided in ("share", "copy") else "refuse"), (plan, values)
        copies = [step for step in plan.steps if step.startswith(("copy", "a byte for each", "elements side by side"))]
        assert bool(copies) == (plan.action == "copy"), plan


@pytest.mark.parametrize("target", params(["numpy", "torch", "jax", "memoryview", "dlpack"]))
def test_what_a_watch_sees_is_what_explain_says(target):
    for source, values in itertools.product(sources(), itertools.product(*OF_CONVERT.values())):
        tensor, keywords = dlbridge.asdlpack(source), dict(zip(OF_CONVERT, values, strict=True))
        plan = dlbridge.explain(tensor, target, **keywords)
        with dlbridge.watch() as copies, contextlib.suppress(dlbridge.DLBridgeError):
            dlbridge.convert(tensor, target, **keywords)
        said = [(plan.reason, plan.hint, plan.nbytes)] if plan.action == "copy" else []
        assert [(found.reason, found.hint, found.nbytes) for found in copies] == said, plan


@pytest.mark.parametrize(("name", "max_version"), [("LEGACY", None), ("VERSIONED", (1, 3))])
def test_capsules_of_a_tensor(name, max_version, deciding):
    def ways(tensor, device, copy, readonly):
        wanted = None if device is None else (1, 0)
        return lambda: address_of(tensor.__dlpack__(max_version=max_version, dl_device=wanted, copy=copy)), (
            deciding.for_export(tensor, name, device, copy, readonly))

    assert disagreements(ways, KEYWORDS) == []


@pytest.mark.parametrize(("name", "max_version"), [("LEGACY", None), ("VERSIONED", (1, 3))])
def test_capsules_by_to_dlpack(name, max_version, deciding):
    def ways(tensor, readonly):
        return lambda: address_of(dlbridge.to_dlpack(tensor, max_version=max_version, readonly=readonly)), (
            deciding.for_export(tensor, name, None, None, readonly))

    assert disagreements(ways, {"readonly": POLICIES}, ["copy", "share"][bool(max_version):]) == []


def test_a_tensor_exports_what_convert_gives(deciding):
    """Whoever asks: the same memory is shared, copied or refused."""
    cases = [(dlbridge.asdlpack(source, readonly=readonly), copy, readonly)
             for source in sources() for copy in (None, True, False) for readonly in POLICIES]
    assert [(repr(tensor), copy, readonly) for tensor, copy, readonly in cases
            if deciding.for_target(tensor, "dlpack", None, copy, readonly)
            != deciding.for_export(tensor, "LEGACY", None, copy, readonly)] == []


def test_arrays_of_arrow(deciding):
    def ways(tensor, readonly):
        if not hasattr(tensor, "__arrow_c_array__"):
            return None
        return lambda: address_of(tensor.__arrow_c_array__()), deciding.for_export(
            tensor, "ARROW", None, None, readonly)

    assert disagreements(ways, {"readonly": POLICIES}) == []


def test_pickles(deciding):
    def ways(tensor):
        def sent():
            buffers = []
            pickle.dumps(tensor, 5, buffer_callback=buffers.append)
            low = np.frombuffer(buffers[0].raw(), "uint8").ctypes.data
            return tensor.data_ptr if low <= tensor.data_ptr < low + len(buffers[0].raw()) else None

        return sent, deciding.for_export(tensor, "PICKLE", "cpu", None, "share")

    assert disagreements(ways, {}) == []


def test_deep_copies(deciding):
    def ways(tensor):
        return lambda: copy.deepcopy(tensor).data_ptr, deciding.for_export(tensor, "VERSIONED", None, True, "copy")

    assert disagreements(ways, {}, ["copy"]) == []


@pytest.mark.parametrize("device", [None, "cpu"])
def test_out_and_its_plan(device):
    for source in sources():
        tensor = dlbridge.asdlpack(source)
        out = np.zeros(tensor.shape, tensor.dtype if tensor.itemsize >= 1 else "uint8")
        plan = dlbridge.explain(tensor, "numpy", device=device, out=out)
        assert plan.steps[-1:] == (("copy into out (dlbridge)",) if plan.action == "copy" else ()), plan
        try:
            dlbridge.convert(tensor, "numpy", device=device, out=out)
            done = "copy"
        except dlbridge.DLBridgeError:
            done = "refuse"
        assert plan.action == done, plan


def test_views_of_extensions(deciding):
    """By every want that makes sense. Who writes is refused read-only memory without elements too, as by a buffer."""
    answers = [(repr(tensor), flags, *deciding.for_want(tensor, flags)) for tensor in map(dlbridge.asdlpack, sources())
               for flags in range(32) if not flags & WRITABLE or (not flags & OR_COPY and tensor.nbytes)]
    assert {decided for *_, decided in answers} > {"share", "copy"}
    assert [answer for answer in answers if answer[2] != answer[3] and {*answer[2:]} & {"share", "copy"}] == []
