"""Rows of the matrix for libraries that do what none should; the children of its tests import this file."""

import atexit
import os
import signal
import subprocess
import sys
import time

import numpy as np

from dlbridge.matrix.rows import Row


def crash(module, array):
    print("a library's last words", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGSEGV)


def crash_at_exit(module, array):
    atexit.register(os.kill, os.getpid(), signal.SIGABRT)
    return array


def talk(module, array):
    print("hello")
    os.write(1, b"hello")
    return array


class Exporter:
    """Its own code fails."""

    def __dlpack__(self, **keywords):
        raise RuntimeError("there is no memory\nin this machine")

    def __dlpack_device__(self):
        return (1, 0)


class Copier:
    """Each export is of other memory."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        self.last = self.array.copy()
        return self.last.__array_interface__


def leave_another(module, array):
    """Another process keeps what this one writes to open, for longer than anybody waits."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return array


def end_without_a_name(module, array):
    os.kill(os.getpid(), signal.SIGRTMIN + 6)


def values(module, array):
    return np.asarray(array)


ROWS = (
    Row("numpy", "numpy", ("numpy",), lambda numpy, x: x, values),
    Row("memoryview", "builtins", (), lambda python, x: memoryview(x), values),
    Row("crashing", "builtins", (), crash, values),
    Row("crashing at exit", "builtins", (), crash_at_exit, values),
    Row("exiting", "builtins", (), lambda python, x: os._exit(3), values),
    Row("sleeping", "builtins", (), lambda python, x: time.sleep(600), values),
    Row("nameless", "builtins", (), end_without_a_name, values),
    Row("leaving", "builtins", (), leave_another, values),
    Row("lying", "builtins", (), lambda python, x: x, lambda python, x: np.asarray(x) + 1),
    Row("misshapen", "builtins", (), lambda python, x: x, lambda python, x: np.asarray(x).ravel()),
    Row("talking", "builtins", (), talk, values),
    Row("refused", "builtins", (), lambda python, x: x.tolist(), values),
    Row("broken", "builtins", (), lambda python, x: python.no_such_function(x), values),
    Row("raising", "builtins", (), lambda python, x: Exporter(), values),
    Row("copying", "builtins", (), lambda python, x: Copier(x), lambda python, x: x.array),
    Row("absent", "no_such_module", ("no-such-package",), lambda module, x: x, values),
)
