"""The C floors of the benchmarks: what they give shares memory, keeps it alive, and leaves nothing behind."""

import functools
import gc
import importlib
import json
import os
import re
import resource
import subprocess
import sys
import weakref
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from bench import floors as floors_file

pytestmark = pytest.mark.needs("plain memory", "torch 2.10", "jax", "ml_dtypes")

CALLS = 100_000


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


floors = functools.cache(floors_file.load)      # not now: where torch is absent, this file is only collected


class Subclass(np.ndarray):
    pass


def float32():
    return np.arange(12, dtype=np.float32).reshape(3, 4).copy()


def wrap_and_export(array):
    return floors().wrap(array).__dlpack__(max_version=(1, 1))


SOURCES = {
    "numpy_to_torch": float32,
    "torch_to_numpy": lambda: torch.arange(12.0).reshape(3, 4),
    "bfloat16_to_torch": lambda: float32().astype(ml_dtypes.bfloat16),
    "bfloat16_to_numpy": lambda: torch.arange(12.0).reshape(3, 4).bfloat16(),
    "buffer_to_torch": lambda: bytearray(range(12)),
    "jax_to_torch": lambda: jnp.arange(12, dtype=jnp.float32).reshape(3, 4),
    "wrap": float32,
}
CONVERSIONS = [name for name in SOURCES if name != "wrap"]


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_floor_gives_the_same_elements_at_the_same_address(name):
    source = SOURCES[name]()
    result = getattr(floors(), name)(source)
    if name.endswith("to_numpy"):
        assert (result.ctypes.data, result.shape) == (source.data_ptr(), source.shape)
        assert result.dtype == (np.float32 if name.startswith("torch") else ml_dtypes.bfloat16)
        assert result.astype(np.float64).ravel().tolist() == list(range(12))
    else:
        held = np.asarray(source)
        assert (result.data_ptr(), tuple(result.shape)) == (held.__array_interface__["data"][0], held.shape)
        assert str(result.dtype) == f"torch.{held.dtype}"
        assert result.flatten().tolist() == list(range(12))


@pytest.mark.parametrize("view", [np.s_[::2], np.s_[:, 1:3], np.s_[:, ::3], np.s_[1], np.s_[...]])
def test_strides_survive_both_ways(view):
    array = float32()[view]
    tensor = floors().numpy_to_torch(array)
    assert tensor.tolist() == array.tolist()
    back = floors().torch_to_numpy(tensor)
    assert (back.strides, back.tolist()) == (array.strides, array.tolist())
    assert back.flags.writeable


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D"])
def test_dtypes_survive_both_ways(dtype):
    array = np.arange(3).astype(dtype)
    back = floors().torch_to_numpy(floors().numpy_to_torch(array))
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d"])
def test_buffers_of_every_dtype(dtype):
    array = np.arange(3).astype(dtype)
    assert str(floors().buffer_to_torch(array).dtype) == f"torch.{array.dtype}"
    assert floors().buffer_to_torch(array).tolist() == array.tolist()


def test_an_export_of_the_wrap_is_a_capsule_that_torch_takes():
    array = float32()
    wrapped = floors().wrap(array)
    tensor = torch.from_dlpack(wrapped.__dlpack__(max_version=(1, 1)))
    unused = wrapped.__dlpack__(max_version=(1, 1))
    del wrapped, unused
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.tolist() == array.tolist()


@pytest.mark.parametrize("name", ["numpy_to_torch", "wrap"])
def test_the_source_lives_as_long_as_the_result(name):
    array = float32()
    gone = weakref.ref(array)
    result = getattr(floors(), name)(array)
    del array
    assert gone() is not None
    del result
    assert gone() is None


def test_the_capsule_keeps_the_source_after_the_wrap():
    array = float32()
    gone = weakref.ref(array)
    capsule = wrap_and_export(array)
    del array
    assert gone() is not None
    del capsule
    assert gone() is None


def test_the_tensor_lives_as_long_as_the_array():
    memory = float32()
    gone = weakref.ref(memory)
    tensor = torch.from_numpy(memory)
    view = floors().torch_to_numpy(tensor)[1:]
    del tensor, memory
    gc.collect()
    assert gone() is not None
    assert view.ravel().tolist() == list(range(4, 12))
    del view
    assert gone() is None


def test_the_buffer_is_held_until_the_tensor_is_gone():
    source = bytearray(8)
    tensor = floors().buffer_to_torch(source)
    with pytest.raises(BufferError):
        source.append(1)
    del tensor
    source.append(1)


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_is_left_of_many_calls(name):
    floor, source = getattr(floors(), name), SOURCES[name]()
    references = sys.getrefcount(source)

    def repeat(calls):
        for _ in range(calls):
            floor(source)

    repeat(CALLS // 10)
    gc.collect()
    before, blocks = resident_bytes(), sys.getallocatedblocks()
    repeat(CALLS)
    assert resident_bytes() - before < 32 * CALLS
    assert sys.getallocatedblocks() - blocks < 100
    assert sys.getrefcount(source) == references


def test_nothing_is_left_of_many_exports():
    source = float32()
    wrap_and_export(source)
    references, blocks = sys.getrefcount(source), sys.getallocatedblocks()
    before = resident_bytes()
    for _ in range(CALLS):
        wrap_and_export(source)
    assert resident_bytes() - before < 32 * CALLS
    assert sys.getallocatedblocks() - blocks < 100
    assert sys.getrefcount(source) == references


@pytest.mark.parametrize(("name", "source"), [
    ("numpy_to_torch", [1]),
    ("numpy_to_torch", float32().view(Subclass)),
    ("numpy_to_torch", float32().astype(">f4")),
    ("numpy_to_torch", np.array(["text"])),
    ("numpy_to_torch", lambda: np.zeros(3, ml_dtypes.float8_e5m2)),
    ("wrap", [1]),
    ("torch_to_numpy", torch.zeros(3, dtype=torch.float8_e5m2)),
    ("buffer_to_torch", b"read-only"),
    ("buffer_to_torch", [1]),
    ("buffer_to_torch", np.zeros((1,) * 9)),
    ("buffer_to_torch", np.zeros(3, "c8")),
])
def test_what_a_floor_does_not_know_is_refused(name, source):
    if callable(source):
        source = source()
    references = sys.getrefcount(source)
    with pytest.raises((TypeError, BufferError, ValueError)):
        getattr(floors(), name)(source)
    assert sys.getrefcount(source) == references


@pytest.mark.parametrize(("variable", "value", "text"), [
    ("CC", "no-such-compiler", "compiler no-such-compiler: does not run"),
    ("CFLAGS", "-include no_such_header.h", "failed with 1"),
])
def test_a_failing_compiler_gives_none_and_the_reason(variable, value, text, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(variable, value)
    reasons = []
    assert floors_file.build(reasons.append) is None
    assert text in reasons[0]


def test_outside_a_checkout_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setattr(floors_file, "HERE", tmp_path)
    reasons = []
    assert floors_file.build(reasons.append) is None
    assert "run in a checkout" in reasons[0]


@pytest.mark.parametrize("torch_module", ["None", "types.SimpleNamespace(Tensor=object)"])
def test_without_the_exchange_api_there_are_none(torch_module):
    code = f"import sys, types; sys.modules['torch'] = {torch_module}; from bench import floors; print(floors.build())"
    done = subprocess.run([sys.executable, "-c", code], cwd=floors_file.HERE, capture_output=True, text=True,
                          env={**os.environ, "PYTHONSAFEPATH": ""})
    assert done.stdout.startswith("floors: torch: "), done.stderr
    assert done.stdout.endswith("\nNone\n")


def test_the_checkout_is_left_as_it_was():
    assert not [path for path in floors_file.HERE.rglob("*") if path.suffix in {".so", ".o"}]


@pytest.fixture
def instructions():
    return importlib.import_module("instructions")


RECORD = {"ratios": {"convert(a)": 1.5}}


@pytest.mark.parametrize(("ratio", "problem"), [
    (1.2, None),
    (1.5, None),
    (1.57, None),
    (1.58, r"instructions: convert\(a\): 1\.580 of its C floor, where 1\.500 is recorded: 5\.3% more.*--record"),
])
def test_a_path_that_grew_by_more_than_five_percent_is_named(instructions, ratio, problem):
    problems = instructions.grown({"convert(a)": ratio}, RECORD)
    assert bool(problems) is (problem is not None)
    if problem:
        assert re.match(problem, problems[0])
        assert "recorded with" in problems[-1]


def test_a_path_without_a_record_is_named(instructions):
    (problem, _) = instructions.grown({"convert(b)": 1.0}, RECORD)
    assert "convert(b): 1.000 of its C floor, and none is recorded" in problem


def test_a_goal_that_is_not_reached_is_named(instructions):
    cases = (instructions.Case("a", "", 1.1), instructions.Case("b", "", 1.1), instructions.Case("c", ""))
    assert instructions.missed({"a": 1.1, "b": 1.11, "c": 9.0}, cases) == [
        "instructions: b: 1.110 of its C floor, and the goal is 1.10"]


def test_every_path_is_recorded(instructions):
    recorded = json.loads(instructions.RECORD.read_text())["ratios"]
    assert set(recorded) == {case.statement for case in instructions.CASES}


PROFILE = """\
desc: Trigger: Client Request: 0
events: Ir
ob=(1) /lib/libone.so.2
fl=(1) one.c
fn=(1) outer
0 10
cob=(2) /lib/two.cpython-311-x86_64-linux-gnu.so
cfi=(2) two.c
cfn=(2) inner
calls=3 0
0 90
* 5

fn=(3) outer'2
0 1

ob=(2)
fl=(2)
fn=(2)
0 40
totals: 56
"""


def test_a_profile_has_what_each_function_itself_costs(instructions):
    assert instructions.read_profile(PROFILE) == {"libone: outer": 16, "two: inner": 40}
