"""Device memory for libraries that have none, or cannot be told of streams: under the fake driver, in a child each."""

import pytest
from fake_driver.harness import in_child
from libraries.rows import ROWS

from dlbridge.libraries.library import library_named

# What builds for the CPU do with memory of a GPU: the host waits, the default stream does, or it is refused.
DEVICE = {"onnxruntime": "waited", "tvm_ffi": "ordered", **{      # these say it themselves
    name: ("ConversionError", f"^{name}: import .*({text})") for name, text in {
        "jax": "Unknown backend", "mlx": "CUDA import|device", "warp": "IndexError|device"}.items()
}}
REFUSED = "DeviceError", "is not the host's memory, which is all that"
PINNED = {"tvm_ffi": "ordered"}     # which keeps its label; for the rest it is the host's, which is about to read it


@in_child(TF_CPP_MIN_LOG_LEVEL="3")
def hand_over(name, module, kind, done):
    import ctypes
    import importlib
    import warnings

    import pytest

    warnings.simplefilter("ignore")
    from fake_driver.producers import Interface, driver, fields, order

    import dlbridge

    importlib.import_module(module)
    driver.make_current(0)
    stream = driver.stream()
    memory = driver.allocate(0, 64, kind)
    if kind == "host":
        ctypes.memset(memory, 1, 64)
    source = Interface(memory, stream=stream)
    driver.clear()
    if type(done) is tuple:
        error, text = done
        with pytest.raises(getattr(dlbridge, error), match=text):
            dlbridge.convert(source, name)
    else:
        result = dlbridge.convert(source, name)
        waits = [fields(line)["stream"] for line in driver.log("StreamSynchronize")]
        assert (waits, order()) == {"waited": ([stream], []), "ordered": ([], [(stream, 1)])}[done]
    if kind == "host":
        assert set(dlbridge.convert(result, "numpy").tobytes()) == {1}


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_device_memory_is_ordered_or_refused(name):
    hand_over(name=name, module=library_named(name).top, kind="device", done=DEVICE.get(name, REFUSED))


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_pinned_memory_is_ordered(name):
    hand_over(name=name, module=library_named(name).top, kind="host", done=PINNED.get(name, "waited"))
