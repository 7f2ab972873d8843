"""What programs have that end while much is alive: test_exit.py's bodies import it."""

import functools
import os
import sys
import threading

import numpy

import dlbridge
from dlbridge import asdlpack, convert

TARGETS = ("numpy", "memoryview", "dlpack", "dlbridge")
# Without a global, since modules and builtins are empty in the last finalizers.
SOURCES = {
    "ndarray": functools.partial(numpy.zeros, 64, "float32"),
    "bytes": functools.partial(bytes, 64),
    "bytearray": functools.partial(bytearray, 64),
    "Tensor": functools.partial(asdlpack, bytearray(64)),
    "capsule": lambda make=bytearray, convert=convert: convert(make(64), "dlpack"),
    "swapped": functools.partial(numpy.zeros, 64, ">f4"),
}


def convert_all(convert=convert, sources=tuple(SOURCES.values()), targets=TARGETS):
    """As defaults, so that they are there until the end."""
    return [convert(make(), target) for make in sources for target in targets]


def start(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def fork(in_child):
    """The child ends as any program does: what it inherited is let go, and what its atexit functions do is done."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        import signal
        signal.alarm(20)        # rather than to wait for ever for a thread that is not there
        in_child()
        sys.exit()
    status = os.waitpid(child, 0)[1]
    assert status == 0, status


class Namespace:
    """A target that is read off under a lock, by code of its own."""

    from_dlpack = staticmethod(numpy.from_dlpack)

    def __init__(self, function):
        self.function = function

    @property
    def __version__(self):
        self.function()
        return "1"


def started_deleters(library, owner, microseconds, kept, count=300):
    """A function that lets C threads call as many deleters of capsules."""
    import ctypes

    from dlbridge.testing import abi
    from dlbridge.testing.producers import capsule_pointer, rename_capsule

    used = ctypes.c_char_p(b"used_dltensor_versioned")
    kept.append(used)           # what C has the address of lives as long as the process
    tensors, deleters = (ctypes.c_void_p * count)(), (ctypes.c_void_p * count)()
    for index in range(count):
        capsule = dlbridge.to_dlpack(owner(), max_version=(1, 0))
        tensors[index] = capsule_pointer(capsule, abi.VERSIONED_NAME)
        struct = abi.DLManagedTensorVersioned.from_address(tensors[index])
        deleters[index] = ctypes.cast(struct.deleter, ctypes.c_void_p).value
        rename_capsule(capsule, used)
    pause = ctypes.c_long(microseconds)
    return functools.partial(library.start_letting_go, ctypes.c_long(count), deleters, tensors, pause)


convert_all()
