"""Notes what a process does but move memory, from the import of this module on: events of Python's audit, and the
names that it asks of its environment."""

import os
import sys

import jax
import ml_dtypes  # noqa: F401 (what their imports do is theirs)
import numpy  # noqa: F401
import pyarrow  # noqa: F401
import torch  # noqa: F401

# What a library that moves arrays has no business with, by the beginning of the event.
FORBIDDEN = (
    "socket.", "urllib.", "http.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn",
    "os.putenv", "os.remove", "os.rename", "os.mkdir", "shutil.", "tempfile.", "pty.", "webbrowser.",
)

jax.numpy.zeros(1)
events: list[tuple[str, str]] = []
asked: list[str] = []


def watch(event, arguments):
    if event.startswith(FORBIDDEN) or event == "ctypes.dlopen":
        events.append((event, str(arguments[0])))
    if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        events.append((event, str(arguments[0])))
    # Python itself makes its named tuples so.
    if event == "exec" and getattr(arguments[0], "co_filename", "").startswith("<string") and (
            sys._getframe(1).f_globals["__name__"] != "collections"):
        events.append((event, "<string>"))


class Environment(type(os.environ)):
    def __getitem__(self, name):
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] in ("os", "collections.abc"):
            frame = frame.f_back
        # Compiled code has no frame: what it asks for, the program seems to.
        if frame.f_globals["__name__"].partition(".")[0] in ("__main__", "lifetime", "dlbridge"):
            asked.append(name)
        return super().__getitem__(name)


os.environ.__class__ = Environment
sys.addaudithook(watch)
os.environ.get("SEEN")
assert asked == ["SEEN"]
asked.clear()
