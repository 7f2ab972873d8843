"""What dlbridge does to the machine it runs on: nothing. Python's own audit events tell."""

from pathlib import Path

import pytest
from support.children import in_child

import dlbridge

pytestmark = pytest.mark.needs("an installation")

everything = pytest.mark.needs("torch", "jax", "ml_dtypes", "pyarrow")


@everything
@in_child
def test_conversions_touch_nothing_but_memory():
    import contextlib
    from pathlib import Path

    from lifetime.watched import asked, events, jax, numpy, pyarrow, torch

    import dlbridge

    sources = numpy.arange(6.0)[::-1], b"bytes", bytearray(8), torch.ones(3), jax.numpy.ones(3), pyarrow.array([1])
    for source in sources:
        for target in ("numpy", "torch", "jax", "memoryview", "dlpack", "dlbridge"):
            with contextlib.suppress(dlbridge.DLBridgeError):
                dlbridge.convert(source, target, readonly="share")
            str(dlbridge.explain(source, target))
    for target in ("cupy", "nonsense"):
        with contextlib.suppress(dlbridge.DLBridgeError):
            dlbridge.convert(source, target)
    libraries = {Path(name).name for event, name in events if event == "ctypes.dlopen"}
    # Of torch, and only what it has loaded itself (RTLD_NOLOAD).
    assert libraries <= {"libc10.so", "libtorch_cpu.so"}, libraries
    others = [event for event in events if event[0] != "ctypes.dlopen"]
    assert others == [], others
    asked = [name for name in asked if not name.startswith("PYARROW_")]         # pyarrow is compiled too
    assert asked == ["DLBRIDGE_WATCH"], asked


@everything
@in_child
def test_shared_memory_is_sent_by_sockets_of_this_machine():
    from lifetime.watched import events, numpy
    from support.sharing import message, received

    import dlbridge

    tensor = dlbridge.shared(numpy.ones(3))
    of_imports = {"exec", "ctypes.dlopen"}
    assert {event for event, _ in events} <= of_imports, events
    received(message(tensor))
    assert {event for event, _ in events} - of_imports == {
        "socket.__new__", "socket.bind", "socket.connect", "socket.sendmsg"}, events


@everything
@in_child
def test_the_watch_sees():
    import os
    import socket
    import subprocess

    from lifetime.watched import asked, events

    subprocess.run(["true"], check=True)
    socket.socket().close()
    open(os.devnull, "w").close()
    exec("1")
    os.environ.get("DLBRIDGE_LIBRARY")
    assert {"subprocess.Popen", "socket.__new__", "open", "exec"} <= {event for event, _ in events}, events
    assert "DLBRIDGE_LIBRARY" in asked


def test_the_environment_is_asked_for_one_thing():
    """Nothing is loaded but by the name that the dynamic loader knows it by."""
    folder = Path(dlbridge.__file__).parent
    modules = list(folder.rglob("*.so"))
    assert len(modules) > 30
    for module in modules:
        assert b"getenv" not in module.read_bytes(), module
    for source in folder.rglob("*.py"):
        if source.relative_to(folder).parts[0] not in ("demo", "matrix", "testing"):
            assert source.read_text().count("environ[") + source.read_text().count("environ.") == (
                source.name == "watch.py"), source
