"""Every library to every other, in every layout and dtype: shared where it can be, right everywhere, else refused."""

import numpy as np
import pytest
from gpu.libraries import CLASSES, DTYPES, FAKE, Lacks, sample, viewed

import dlbridge

pytestmark = pytest.mark.gpu

# What a target does with a layout; what is not named here it shares. A set: either is right, since for JAX it depends
# on the alignment. What it lacks is refused: elements on a device are moved by a kernel of the library that made them.
REFUSED = {
    ("torch", "reversed"), ("jax", "every second"), ("jax", "reversed"), ("jax", "broadcast"), ("jax", "offset"),
    ("numba", "broadcast"),
}
OUTCOMES = {case: {"refused"} for case in REFUSED} | {
    ("jax", "transposed"): {"shared", "copied"},
    ("jax", "0-d"): {"shared", "copied"},
}
# __cuda_array_interface__ does not tell these from other bytes.
UNNAMED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
PAIRS = [(source, target) for source in CLASSES for target in CLASSES if source != target]
CASES = [(*pair, layout) for pair in PAIRS for layout in CLASSES[pair[0]].layouts]


def outcomes(source, target, layout, dtype):
    if dtype in UNNAMED and "numba" in (source, target):
        return OUTCOMES.get((target, layout), {"shared"}) | {"refused"}
    return OUTCOMES.get((target, layout), {"shared"})


def lacks(library, dtype):
    try:
        library.array(sample(dtype))
    except Lacks:
        return True
    return False


def bits(values):
    return np.ascontiguousarray(values).tobytes()


def way_back(received, producer):
    return dlbridge.convert(received, producer.name, readonly="share")


def outcome(producer, consumer, layout, dtype):
    """What became of one array, and what is wrong with it, or ""."""
    values = sample(dtype)
    expected = np.asarray(viewed(values, layout))
    array = producer.make(values, layout)
    if bits(producer.values(array)) != bits(expected):
        return "", "the test itself is wrong: the source does not hold the values"
    try:
        received = dlbridge.convert(array, consumer.name, readonly="share")
    except dlbridge.DLBridgeError as error:
        return "refused", "" if str(error) else "an error without a text"
    shared = not expected.size or consumer.pointer(received) == producer.pointer(array)
    found = consumer.values(received)
    wrong = ""
    if found.shape != expected.shape:
        wrong = f"shape {found.shape}, not {expected.shape}"
    elif bits(found) != bits(expected):
        wrong = "other values"
    elif layout in consumer.layouts and bits(producer.values(way_back(received, producer))) != bits(expected):
        wrong = "other values on the way back"
    return "shared" if shared else "copied", wrong


@pytest.mark.parametrize(("source", "target", "layout"), CASES)
def test_pair(source, target, layout, library):
    producer, consumer = library(source), library(target)
    failures = []
    for dtype in DTYPES:
        if lacks(producer, dtype):
            continue
        allowed = {"refused"} if lacks(consumer, dtype) else outcomes(source, target, layout, dtype)
        became, wrong = outcome(producer, consumer, layout, dtype)
        if wrong or became not in allowed:
            failures.append(f"{dtype}: {became}, where {' or '.join(sorted(allowed))} is right; {wrong}")
    assert not failures, "\n".join([f"{source} -> {target}, {layout}:", *failures])


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_copy_is_another_memory(source, target, library):
    producer, consumer = library(source), library(target)
    for layout in producer.layouts:
        if (target, layout) in REFUSED:
            continue
        values = sample("float32")
        array = producer.make(values, layout)
        received = dlbridge.convert(array, target, copy=True)
        expected = viewed(values, layout)
        assert bits(consumer.values(received)) == bits(expected), layout
        assert not expected.size or consumer.pointer(received) != producer.pointer(array), layout


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if "jax" not in pair])
def test_write_is_seen_on_the_other_side(source, target, library):
    """Shared memory, not only a pointer that is alike."""
    producer, consumer = library(source), library(target)
    array = producer.array(sample("int32", (64,)))
    received = dlbridge.convert(array, target, copy=False)
    stream = consumer.legacy_stream()
    consumer.fill(received, 11, stream)
    assert np.array_equal(producer.values(array), np.full(64, 11, np.int32))


@pytest.mark.parametrize(("target", "layout"), sorted(REFUSED))
def test_what_would_have_to_be_rearranged_is_refused(target, layout, library):
    producer = library("pool" if FAKE else "cupy")
    library(target)
    array = producer.make(sample("float32"), layout)
    for keywords in {}, {"copy": True}, {"readonly": "share"}:
        with pytest.raises(dlbridge.DeviceError, match=r"x\.copy\(\)"):
            dlbridge.convert(array, target, **keywords)
        assert dlbridge.explain(array, target, **keywords).action == "refuse"
