"""What the hardware tests stand on, as far as the host's memory can show it."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_driver import harness
from gpu import driver, latency, libraries, soak
from support.children import in_child

# JAX has no 64-bit types by default, and this process keeps its setting.
WIDE = ("int64", "uint64", "float64", "complex128")
CASES = [
    *((libraries.Torch, dtype) for dtype in libraries.DTYPES),
    *((libraries.Jax, dtype) for dtype in libraries.DTYPES if dtype not in WIDE),
]


@pytest.mark.parametrize(("library", "dtype"), CASES)
def test_values_come_back(library, dtype, monkeypatch):
    import jax

    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    values = libraries.sample(dtype)
    library = library("cpu")
    for layout in library.layouts:
        expected = libraries.viewed(values, layout)
        found = library.values(library.make(values, layout))
        assert found.dtype == values.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes(), layout


@pytest.mark.parametrize("layout", libraries.LAYOUTS)
def test_described_memory_is_read(layout, monkeypatch):
    monkeypatch.setattr(driver, "read", ctypes.string_at)
    view = libraries.viewed(libraries.sample("complex64"), layout)
    found = libraries.described_values(view.__array_interface__, view.dtype)
    assert found.shape == view.shape
    assert found.tobytes() == view.tobytes()


def test_a_library_that_is_not_there_says_why(monkeypatch):
    class Absent:
        def __init__(self):
            raise ImportError("no module")

    monkeypatch.setattr(libraries, "CLASSES", {"absent": Absent})
    for _ in range(2):
        with pytest.raises(libraries.Unusable, match="no module"):
            libraries.find("absent")


def test_latency_is_a_ratio_of_two_statements():
    row = latency.Row("both", "sum(numbers)", "sum(numbers + numbers)", 1.0, "", ())
    latency.measure(row, {"numbers": list(range(1000))}, 5, lambda: None)
    assert row.ours_ns > 0
    assert row.ratio == row.ours_ns / row.native_ns


@pytest.mark.parametrize(("ratio", "goal", "missing", "missed"), [
    (0.3, 0.35, "", False), (0.4, 0.35, "", True), (9.0, None, "", False), (0.0, 0.35, "cannot be imported", False),
])
def test_a_goal_is_missed(ratio, goal, missing, missed):
    row = latency.Row("pair", "a", "b", goal, "", (), ratio=ratio, missing=missing)
    assert row.missed is missed
    assert ("MISSED" in latency.text([row])) is missed


def test_a_pair_that_fails_misses_its_goal():
    row = latency.Row("pair", "a", "b", 0.35, "", (), failed="DeviceError: no")
    assert row.missed
    assert "FAILED: DeviceError: no" in latency.text([row])


def test_soak_says_what_changed():
    assert soak.described({"missing": "no GPU"}) == "not run: no GPU"
    assert "live events" in soak.described({"changed": ["live events: 1 -> 2"]})


@pytest.fixture
def LD_LIBRARY_PATH(tmp_path):
    """Where the driver is that counts events, and behind it the fake one."""
    environment = {**os.environ, "PYTHON": sys.executable, "LD_LIBRARY_PATH": str(harness.folder("cuda"))}
    subprocess.run(["bash", Path(__file__).with_name("events.sh"), tmp_path], env=environment, check=True)
    return f"{tmp_path}:{environment['LD_LIBRARY_PATH']}"


@in_child
def test_events_are_counted_before_another_driver(LD_LIBRARY_PATH):
    import ctypes

    driver = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    context, event, found, status = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    # The other driver's own.
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.dlbridge_live_events() == 0
    assert driver.cuEventCreate(ctypes.byref(event), 2) == 0
    assert driver.dlbridge_live_events() == 1
    name, version, flags = b"cuEventDestroy", 12000, ctypes.c_uint64(0)
    assert driver.cuGetProcAddress_v2(name, ctypes.byref(found), version, flags, ctypes.byref(status)) == 0
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(found.value)(event) == 0
    assert driver.dlbridge_live_events() == 0
    assert driver.cuEventDestroy_v2(ctypes.c_void_p(0x1234)) != 0      # it is none, and not counted
    assert driver.dlbridge_live_events() == 0
