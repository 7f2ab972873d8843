"""The cases of the self-test, and the loop that runs them."""

import gc
import importlib
import importlib.util
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import dlbridge
from dlbridge.testing.producers import (
    ArrayInterface,
    ArrayStruct,
    CudaArrayInterface,
    OldProducer,
    OpaqueProducer,
    Producer,
)

Case = tuple[str, Callable[[], None]]

# Types that every library has, and in which the values of _aligned() survive every conversion.
DTYPES = ("bool", "int8", "int16", "int32", "uint8", "float16", "float32", "complex64")
LIBRARIES = ("numpy", "torch", "jax", "array_api_strict", "ml_dtypes")


class Skipped(Exception):
    """The machine lacks something that the case needs. The text says what."""


class Failed(Exception):
    """The outcome is not the expected one."""


def expect(condition: bool, text: str) -> None:
    """Fail with a text unless the condition holds."""
    # An assert would not be checked under python -O.
    if not condition:
        raise Failed(text)


def expect_equal(actual: Any, expected: Any) -> None:
    """Fail unless both are equal."""
    expect(actual == expected, f"{actual!r} is not {expected!r}")


def expect_error(kind: type[BaseException], function: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
    """Fail unless the call raises that kind of error."""
    try:
        function(*arguments, **keywords)
    except kind:
        return
    raise Failed(f"no {kind.__name__}")


def library(name: str) -> Any:
    """Import a library. Skipped is raised if it is not installed."""
    if importlib.util.find_spec(name) is None:
        raise Skipped(f"{name} is not installed")
    return importlib.import_module(name)


# ---- arrays of each library ------------------------------------------------------------------------------------------

def _aligned(dtype: str) -> np.ndarray:
    """Six elements in memory that every library can share. JAX needs an address that is a multiple of 64."""
    raw = np.zeros(256, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start:start + 6 * np.dtype(dtype).itemsize].view(dtype).reshape(2, 3)
    array[:] = np.arange(6).reshape(2, 3)
    return array


MAKERS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda array: array,
    "torch": lambda array: library("torch").from_numpy(array),
    "jax": lambda array: library("jax").numpy.asarray(array),
    "array_api_strict": lambda array: library("array_api_strict").asarray(array),
    "buffer": memoryview,
    "dlpack": dlbridge.to_dlpack,
    "dlbridge": dlbridge.asdlpack,
    "array_interface": ArrayInterface,
    "array_struct": ArrayStruct,
    "producer": Producer,
    "old producer": OldProducer,
    "opaque producer": OpaqueProducer,
}
TARGETS = ("numpy", "torch", "jax", "array_api_strict", "memoryview", "dlpack", "dlbridge")


def _target(name: str) -> Any:
    if name in ("torch", "jax", "array_api_strict"):
        module = library(name)
        return module if name == "array_api_strict" else name
    return name


def _round_trip(source: str, target: str, dtype: str) -> Callable[[], None]:
    def check() -> None:
        to = _target(target)
        made = MAKERS[source](_aligned(dtype))
        result = dlbridge.convert(made, to)
        back = dlbridge.convert(result, "numpy")
        expect_equal(back.dtype, np.dtype(dtype))
        expect_equal(back.tolist(), _aligned(dtype).tolist())

    return check


def _round_trips() -> Iterator[Case]:
    for source in MAKERS:
        for target in TARGETS:
            for dtype in DTYPES:
                if dtype != "float16" or "array_api_strict" not in (source, target):    # not in the standard
                    yield f"{source} -> {target}, {dtype}", _round_trip(source, target, dtype)


# ---- what zero-copy means --------------------------------------------------------------------------------------------

def _pointer(source: str, target: str) -> Callable[[], None]:
    def check() -> None:
        to = _target(target)
        made = MAKERS[source](_aligned("float32"))
        before = dlbridge.asdlpack(made).data_ptr
        try:
            result = dlbridge.convert(made, to, copy=False, readonly="share")
        except dlbridge.CopyRequiredError as error:
            raise Skipped(str(error)) from None
        expect_equal(dlbridge.asdlpack(result).data_ptr, before)

    return check


def _copied(target: str) -> Callable[[], None]:
    def check() -> None:
        array = _aligned("float32")
        result = dlbridge.convert(array, _target(target), copy=True)
        back = dlbridge.asdlpack(result)
        expect(back.data_ptr != array.ctypes.data, "copy=True shares")
        array[:] = 9
        expect_equal(dlbridge.convert(back, "numpy").tolist(), [[0, 1, 2], [3, 4, 5]])

    return check


def _pointers() -> Iterator[Case]:
    for target in TARGETS:
        for source in ("numpy", "torch", "jax", "buffer", "dlbridge", "array_interface", "array_struct"):
            if target != "dlpack":
                yield f"{source} -> {target} shares the memory", _pointer(source, target)
        yield f"numpy -> {target} with copy=True", _copied(target)


# ---- read-only memory ------------------------------------------------------------------------------------------------

def _frozen() -> np.ndarray:
    array = _aligned("float32")
    array.flags.writeable = False
    return array


def _read_only_numpy() -> None:
    expect(not dlbridge.convert(b"Hello!", "numpy").flags.writeable, "bytes became writable")


def _read_only_memoryview() -> None:
    expect(dlbridge.convert(_frozen(), "memoryview").readonly, "read-only memory became writable")


def _read_only_torch() -> None:
    library("torch")
    array = _frozen()
    dlbridge.convert(array, "torch").fill_(7)
    expect_equal(array.tolist(), [[0, 1, 2], [3, 4, 5]])
    expect_error(dlbridge.ConversionError, dlbridge.convert, array, "torch", readonly="error")
    expect_error(dlbridge.CopyRequiredError, dlbridge.convert, array, "torch", copy=False)
    shared = dlbridge.convert(array, "torch", readonly="share")
    expect_equal(shared.data_ptr(), array.ctypes.data)


def _read_only_capsule() -> None:
    array = _frozen()
    capsule = dlbridge.to_dlpack(array, max_version=(1, 0))
    expect(dlbridge.asdlpack(capsule).readonly, "a versioned capsule lost the flag")
    expect(not dlbridge.asdlpack(dlbridge.to_dlpack(array)).readonly, "a legacy capsule can have no flag: it is a copy")


def _read_only() -> Iterator[Case]:
    yield "bytes -> numpy stays read-only", _read_only_numpy
    yield "numpy -> memoryview stays read-only", _read_only_memoryview
    yield "numpy -> torch copies read-only memory", _read_only_torch
    yield "numpy -> dlpack flags read-only memory", _read_only_capsule


# ---- deleters --------------------------------------------------------------------------------------------------------

def _deleter(target: str, versioned: bool) -> Callable[[], None]:
    def check() -> None:
        to = _target(target)
        producer = Producer(_aligned("float32"), versioned=versioned)
        result = dlbridge.convert(producer, to)
        expect_equal(len(producer.calls), 1)
        expect(producer.deleted <= 1, "the deleter ran more than once")
        del result
        gc.collect()
        producer.forget()
        expect_equal(producer.deleted, 1)

    return check


def _holds_memory(make: Callable[[bytearray], Any]) -> Callable[[], None]:
    def check() -> None:
        memory = bytearray(8)
        made = make(memory)
        expect_error(BufferError, memory.extend, b"more")
        del made
        memory.extend(b"more")

    return check


def _deleters() -> Iterator[Case]:
    for versioned, name in ((True, "versioned"), (False, "legacy")):
        for target in TARGETS:
            yield f"deleter of a {name} capsule -> {target} runs once", _deleter(target, versioned)
        unused = partial(dlbridge.to_dlpack, max_version=(1, 0) if versioned else None)
        yield f"memory is free once a {name} capsule that nobody consumed is gone", _holds_memory(unused)
    yield "bytearray is pinned while an array lives", _holds_memory(partial(dlbridge.convert, to="numpy"))


# ---- hostile structs -------------------------------------------------------------------------------------------------

HOSTILE: dict[str, dict[str, Any]] = {
    "ndim -1": {"ndim": -1},
    "ndim 65": {"ndim": 65},
    "shape NULL": {"shape": None},
    "data NULL": {"data": None},
    "extent -1": {"shape": (-1, 3)},
    "extents overflow": {"shape": (2**40, 2**40)},
    "strides overflow": {"strides": (2**62, 1)},
    "stride int64 min": {"strides": (-(2**63), 1)},
    "byte_offset overflows": {"byte_offset": 2**64 - 1},
    "device type 99": {"device_type": 99},
    "dtype code 99": {"code": 99},
    "dtype of 0 bits": {"bits": 0},
    "lanes 3": {"lanes": 3},
}


def _hostile_struct(fields: dict[str, Any], versioned: bool) -> Callable[[], None]:
    def check() -> None:
        for target in ("numpy", "dlbridge", "memoryview"):
            producer = Producer(versioned=versioned, **fields)
            expect_error(dlbridge.DLBridgeError, dlbridge.convert, producer, target)
            expect_equal(producer.deleted, 0)
            producer.forget()
            expect_equal(producer.deleted, 1)

    return check


def _wrong_capsules() -> None:
    expect_error(dlbridge.UnsupportedError, dlbridge.convert, Producer(name=b"other").capsule(), "numpy")
    producer = Producer(version=(2, 0))
    expect_error(dlbridge.ConversionError, dlbridge.convert, producer, "numpy")
    capsule = Producer().capsule()
    array = dlbridge.convert(capsule, "numpy")
    expect_error(dlbridge.ConversionError, dlbridge.convert, capsule, "numpy")
    expect_equal(array.tolist(), [[0, 1, 2], [3, 4, 5]])


def _own_errors() -> None:
    for error in (TypeError("max_version"), ValueError("own"), BufferError("own")):
        producer = Producer(error=error)
        expect_error(type(error), dlbridge.convert, producer, "numpy")
        expect_equal(len(producer.calls), 1)


def _no_driver() -> None:
    # The address is the host's, which a CUDA driver does not know either.
    expect_error(dlbridge.DeviceError, dlbridge.convert, CudaArrayInterface(), "dlbridge")


def _no_array() -> None:
    for thing in (None, 1, "text", [1, 2], object()):
        expect_error(dlbridge.UnsupportedError, dlbridge.convert, thing, "numpy")


def _hostiles() -> Iterator[Case]:
    for name, fields in HOSTILE.items():
        yield f"hostile versioned struct: {name}", _hostile_struct(fields, True)
        yield f"hostile legacy struct: {name}", _hostile_struct(fields, False)
    yield "capsules of a wrong name, a wrong version, or used up", _wrong_capsules
    yield "errors of a producer pass through", _own_errors
    yield "CUDA memory that no driver knows", _no_driver
    yield "things that are no arrays", _no_array


# ---- what changes values elsewhere -----------------------------------------------------------------------------------

def _backwards() -> None:
    library("torch")
    array = np.arange(6)[::-1]
    expect_equal(dlbridge.convert(array, "torch").tolist(), [5, 4, 3, 2, 1, 0])
    expect_error(dlbridge.CopyRequiredError, dlbridge.convert, array, "torch", copy=False)


def _byte_order() -> None:
    library("torch")
    array = np.arange(6, dtype=">f4")
    expect_equal(dlbridge.convert(array, "torch").tolist(), [0, 1, 2, 3, 4, 5])


def _wide_integers() -> None:
    jax = library("jax")
    array = np.array([2**40 + 1])
    if jax.config.jax_enable_x64:
        expect_equal(np.asarray(dlbridge.convert(array, "jax")).tolist(), [2**40 + 1])
    else:
        expect_error(dlbridge.ConversionError, dlbridge.convert, array, "jax")


def _masks() -> None:
    expect_error(dlbridge.UnsupportedError, dlbridge.convert, np.ma.masked_equal([1, 2], 2), "dlbridge")


def _bfloat16(target: str) -> Callable[[], None]:
    def check() -> None:
        ml_dtypes = library("ml_dtypes")
        to = _target(target)
        array = np.arange(6).astype(ml_dtypes.bfloat16)
        result = dlbridge.convert(array, to)
        back = dlbridge.convert(result, "numpy")
        expect_equal(back.dtype, array.dtype)
        expect_equal(back.view("uint16").tolist(), array.view("uint16").tolist())

    return check


def _gradients() -> None:
    torch = library("torch")
    tensor = torch.ones(3, requires_grad=True)
    expect_error(dlbridge.ConversionError, dlbridge.convert, tensor, "numpy")
    expect_equal(dlbridge.convert(tensor, "numpy", detach=True).tolist(), [1, 1, 1])


def _negative_bit() -> None:
    torch = library("torch")
    tensor = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    expect(tensor.is_neg(), "torch makes no negative bit this way any more")
    expect_equal(dlbridge.convert(tensor, "numpy").tolist(), [-2, -4])


def _values() -> Iterator[Case]:
    yield "numpy -> torch, backwards", _backwards
    yield "numpy -> torch, the other byte order", _byte_order
    yield "numpy -> jax, int64", _wide_integers
    yield "masked arrays are refused", _masks
    for target in ("torch", "jax", "dlpack", "dlbridge"):
        yield f"bfloat16 numpy -> {target} -> numpy", _bfloat16(target)
    yield "torch with a gradient", _gradients
    yield "torch with a negative bit", _negative_bit


# ---- the loop --------------------------------------------------------------------------------------------------------

GROUPS = (_round_trips, _pointers, _read_only, _deleters, _hostiles, _values)


def run_cases(verbose: bool) -> int:
    """Run every case, print its outcome, and return the exit code."""
    dlpack = ".".join(map(str, dlbridge.DLPACK_VERSION))
    print(f"dlbridge {dlbridge.__version__}, DLPack {dlpack}, {', '.join(_versions())}")
    passed = failed = 0
    skipped: dict[str, int] = {}
    for group in GROUPS:
        for name, check in group():
            try:
                check()
            except Skipped as reason:
                skipped[str(reason)] = skipped.get(str(reason), 0) + 1
                outcome = f"skipped: {reason}"
            except Exception:
                failed += 1
                outcome = "FAILED"
                print(f"{name}: FAILED\n{traceback.format_exc()}")
            else:
                passed += 1
                outcome = "passed"
            if verbose and outcome != "FAILED":
                print(f"{name}: {outcome}")
    for text, times in skipped.items():
        print(f"skipped {times}: {text}")
    print(f"{passed} passed, {failed} failed, {sum(skipped.values())} skipped")
    return 1 if failed else 0


def _versions() -> Iterator[str]:
    for name in LIBRARIES:
        if importlib.util.find_spec(name) is None:
            yield f"no {name}"
        else:
            yield f"{name} {getattr(importlib.import_module(name), '__version__', 'of unknown version')}"
