"""What dlbridge does to the machine it runs on: nothing. Python's own audit events tell."""

import ast
import textwrap
from pathlib import Path

import pytest
from support.children import run_program

import dlbridge

pytestmark = pytest.mark.needs("an installation")

# What a library that moves arrays has no business with, by the beginning of the event.
FORBIDDEN = (
    "socket.", "urllib.", "http.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn",
    "os.putenv", "os.remove", "os.rename", "os.mkdir", "shutil.", "tempfile.", "pty.", "webbrowser.",
)

WATCHED = """
    import sys, os
    import numpy, torch, jax, ml_dtypes, pyarrow                # what they do is theirs
    jax.numpy.zeros(1)

    events = []
    asked = []

    def watch(event, arguments):
        if event.startswith({forbidden!r}) or event == "ctypes.dlopen":
            events.append((event, str(arguments[0])))
        if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            events.append((event, str(arguments[0])))
        if event == "exec" and getattr(arguments[0], "co_filename", "").startswith("<string"):
            # Python itself makes its named tuples so.
            if sys._getframe(1).f_globals["__name__"] != "collections":
                events.append((event, "<string>"))

    class Environment(type(os.environ)):
        def __getitem__(self, name):
            frame = sys._getframe(1)
            while frame.f_globals["__name__"] in ("os", "collections.abc"):
                frame = frame.f_back
            # Compiled code has no frame: what it asks for, the program seems to.
            if frame.f_globals["__name__"].partition(".")[0] in ("__main__", "dlbridge"):
                asked.append(name)
            return super().__getitem__(name)

    os.environ.__class__ = Environment
    sys.addaudithook(watch)
    os.environ.get("SEEN")
    assert asked == ["SEEN"]
    asked.clear()
"""

JOB = """
    import dlbridge
    sources = numpy.arange(6.0)[::-1], b"bytes", bytearray(8), torch.ones(3), jax.numpy.ones(3), pyarrow.array([1])
    for source in sources:
        for target in ("numpy", "torch", "jax", "memoryview", "dlpack", "dlbridge"):
            try:
                dlbridge.convert(source, target, readonly="share")
            except dlbridge.DLBridgeError:
                pass
            str(dlbridge.explain(source, target))
    for target in ("cupy", "nonsense"):
        try:
            dlbridge.convert(source, target)
        except dlbridge.DLBridgeError:
            pass
    print(events, asked, sep="\\n")
"""


def run_watched(job):
    program = textwrap.dedent(WATCHED).format(forbidden=FORBIDDEN) + textwrap.dedent(job)
    return [ast.literal_eval(line) for line in run_program(program).splitlines()]


@pytest.mark.needs("torch", "jax", "ml_dtypes", "pyarrow")
def test_conversions_touch_nothing_but_memory():
    events, asked = run_watched(JOB)
    libraries = [Path(name).name for event, name in events if event == "ctypes.dlopen"]
    # Of torch, and only what it has loaded itself (RTLD_NOLOAD).
    assert set(libraries) <= {"libc10.so", "libtorch_cpu.so"}
    assert [event for event in events if event[0] != "ctypes.dlopen"] == []
    assert [name for name in asked if not name.startswith("PYARROW_")] == []      # pyarrow is compiled too


@pytest.mark.needs("torch", "jax", "ml_dtypes", "pyarrow")
def test_the_watch_sees():
    events, asked = run_watched("""
        import subprocess, socket, os
        subprocess.run(["true"])
        socket.socket().close()
        open(os.devnull, "w").close()
        exec("1")
        os.environ.get("DLBRIDGE_LIBRARY")
        print(events, asked, sep="\\n")
    """)
    assert {"subprocess.Popen", "socket.__new__", "open", "exec"} <= {event for event, _ in events}
    assert "DLBRIDGE_LIBRARY" in asked


def test_extension_modules_ask_for_no_environment():
    """Nothing is loaded but by the name that the dynamic loader knows it by."""
    folder = Path(dlbridge.__file__).parent
    modules = list(folder.rglob("*.so"))
    assert len(modules) > 30
    for module in modules:
        assert b"getenv" not in module.read_bytes(), module
    for source in folder.rglob("*.py"):
        if source.relative_to(folder).parts[0] not in ("demo", "matrix", "testing"):
            assert "environ" not in source.read_text(), source
