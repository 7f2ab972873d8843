"""Every library to every other, in every layout and dtype: shared where it can be, made compact, or refused."""


import numpy as np
import pytest
from gpu.libraries import CLASSES, DTYPES, FAKE, Lacks, sample, viewed
from support.children import in_child

import dlbridge

pytestmark = pytest.mark.gpu

# What a target does with a layout; what is not named here it shares. What it lacks is made compact on the device, by
# the kernels of the array's library, or of CuPy.
REARRANGED = {
    ("torch", "reversed"), ("jax", "every second"), ("jax", "reversed"), ("jax", "broadcast"), ("jax", "offset"),
    ("numba", "broadcast"),
}
# A set: either is right, since it depends on the alignment.
OUTCOMES = {case: {"copied"} for case in REARRANGED} | {("jax", "0-d"): {"shared", "copied"}}
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
    library("pool" if FAKE else "cupy")
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
    library("pool" if FAKE else "cupy")
    for layout in producer.layouts:
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


@pytest.mark.parametrize("source", ["pool"] if FAKE else ["cupy", "torch", "numba"])
@pytest.mark.parametrize(("target", "layout"), sorted(REARRANGED))
def test_what_a_target_lacks_is_made_compact_on_the_device(source, target, layout, library):
    producer, consumer = library(source), library(target)
    library("pool" if FAKE else "cupy")
    if layout not in producer.layouts or source == target:
        pytest.skip(f"{source} has no such arrays")
    array = producer.make(sample("float32"), layout)
    with pytest.raises(dlbridge.CopyRequiredError):
        dlbridge.convert(array, target, copy=False)
    for keywords in {}, {"copy": True}, {"readonly": "share"}:
        plan = dlbridge.explain(array, target, **keywords)
        assert plan.action == "copy", plan
        assert plan.steps[0].startswith("compact copy ("), plan
        received = dlbridge.convert(array, target, **keywords)
        assert bits(consumer.values(received)) == bits(viewed(sample("float32"), layout))


@in_child(warnings="default")
def begin_without_cupy():
    import sys

    import numpy as np
    import pytest
    from numba import cuda

    import dlbridge

    array = cuda.to_device(np.arange(4.0))[::-1]
    with pytest.raises(dlbridge.DeviceError, match="or import cupy, whose kernels then make a compact copy"):
        dlbridge.convert(array, "torch")
    assert "cupy" not in sys.modules
    import cupy  # noqa: F401 (the hint is code that works)

    assert dlbridge.convert(array, "torch").tolist() == [3, 2, 1, 0]


def test_a_library_with_kernels_is_found_once_it_is_imported(library):
    for name in "cupy", "numba", "torch":
        library(name)
    begin_without_cupy()


@pytest.mark.parametrize("source", ["cupy", "torch", "numba"])
def test_every_address_reaches_jax(source, library):
    producer, consumer = library(source), library("jax")
    array = producer.array(sample("float32", (64,)))
    for start in range(9):
        for keywords in {}, {"copy": True}, {"readonly": "share"}:
            received = dlbridge.convert(array[start:start + 16], "jax", **keywords)
            assert bits(consumer.values(received + 0)) == bits(sample("float32", (64,))[start:start + 16]), start


@pytest.mark.parametrize("source", ["cupy", "torch"])
def test_bools_of_any_bytes_are_copied_as_0_and_1(source, library):
    producer, jax = library(source), library("jax")
    raw = np.array([0, 1, 2, 255] * 4, "u1")
    array = producer.array(raw).view(producer.module.bool if source == "torch" else "?")
    for target in "cupy", "torch", "numba", "jax":
        consumer = library(target)
        copied = dlbridge.convert(array, target, copy=True)
        assert consumer.values(copied).view("u1").tolist() == [0, 1, 1, 1] * 4, target
    assert int(dlbridge.convert(array, "jax").sum()) == 12
    assert jax.values(dlbridge.convert(array[::2], "jax")).view("u1").tolist() == [0, 1] * 4


@pytest.mark.parametrize("source", ["cupy", "torch"])
@pytest.mark.parametrize(("wide", "near"), [("float64", "float32"), ("complex128", "complex64"), ("int64", "int32")])
def test_wide_types_are_narrowed_on_the_device(source, wide, near, library):
    producer, consumer = library(source), library("jax")
    values = sample(wide)
    with consumer.module.enable_x64(False):
        for layout in producer.layouts:
            array = producer.make(values, layout)
            plan = dlbridge.explain(array, "jax", narrow=True)
            assert plan.action == "copy", plan
            received = dlbridge.convert(array, "jax", narrow=True)
            assert received.dtype == near
            assert np.array_equal(consumer.values(received), viewed(values, layout))
        large = producer.array(np.array([1, {"float64": 1e300, "complex128": 1e300j, "int64": 2**40}[wide]]))
        with pytest.raises(dlbridge.ConversionError, match="does not fit"):
            dlbridge.convert(large, "jax", narrow=True)


@pytest.mark.parametrize("target", ["cupy", "numba", "jax"])
def test_lazy_bits_are_resolved_on_the_device(target, library):
    torch, consumer = library("torch").module, library(target)
    array = torch.tensor([1 + 2j, 3 - 4j], device="cuda").conj()
    assert consumer.values(dlbridge.convert(array, target)).tolist() == [1 - 2j, 3 + 4j]
    assert consumer.values(dlbridge.convert(array.imag, target)).tolist() == [-2, 4]
