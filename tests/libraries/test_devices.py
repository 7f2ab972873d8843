"""Device memory for libraries that have none, or cannot be told of streams: under the fake driver, in a child each."""

import pytest
from fake_driver.harness import run
from libraries.rows import ROWS

from dlbridge.libraries.library import library_named

WAITED = """
waits = [fields(line)["stream"] for line in driver.log("StreamSynchronize")]
assert (waits, order()) == ([stream], [])
"""
ORDERED = "assert (driver.log('StreamSynchronize'), order()) == ([], [(stream, 1)])"     # the default stream waits
REFUSED = "raise AssertionError('was taken')"
# What must hold once builds for the CPU have taken memory of a GPU; the rest refuse it.
DEVICE = {"onnxruntime": WAITED, "tvm_ffi": ORDERED}
PINNED = {"tvm_ffi": ORDERED}       # which keeps its label; for the rest it is the host's, which is about to read it


def hand_over(name: str, kind: str, check: str) -> None:
    run(
        f"""
        import importlib
        import warnings
        warnings.simplefilter("ignore")
        import dlbridge
        from fake_driver.producers import Interface, driver, fields, order
        importlib.import_module({library_named(name).top!r})
        driver.make_current(0)
        stream = driver.stream()
        source = Interface(driver.allocate(0, 64, {kind!r}), stream=stream)
        driver.clear()
        result = None
        try:
            result = dlbridge.convert(source, {name!r})
        except dlbridge.DLBridgeError as error:
            assert {check == REFUSED}, error
        if result is not None:
            exec({check!r})
        if {kind!r} == "host":
            assert dlbridge.convert(result, "numpy").tolist() == [0, 0, 0, 0]
        """,
        TF_CPP_MIN_LOG_LEVEL="3",
    )


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_device_memory_is_ordered_or_refused(name):
    hand_over(name, "device", DEVICE.get(name, REFUSED))


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_pinned_memory_is_ordered(name):
    hand_over(name, "host", PINNED.get(name, WAITED))
