"""The control of the fake GPU driver, for code that harness.run() runs: ``from fake_driver.control import driver``."""

import atexit
import ctypes
import os
import sys
from typing import Any

TYPES = {"host": 1, "device": 2, "managed": 3}
HANDLE = ctypes.c_size_t        # and addresses
OF_HIP = {                      # others are called alike
    "DeviceGetCount": "GetDeviceCount",
    "EventCreate": "EventCreateWithFlags",
    "PointerGetAttributes": "DrvPointerGetAttributes",
    "CtxGetDevice": "GetDevice",
    "StreamCreate": "StreamCreateWithFlags",
    "MemHostAlloc": "HostMalloc",
    "MemFreeHost": "HostFree",
    "MemAllocAsync": "MallocAsync",
    "MemFreeAsync": "FreeAsync",
}
FUNCTIONS = {
    "log": (ctypes.c_char_p,),
    "clear": (None,),
    "deinitialize": (None,),
    "concurrent_managed_access": (None, ctypes.c_int),
    "descriptors": (None, ctypes.c_int),
    "context_of_memory": (None, HANDLE),
    "current_device": (ctypes.c_int,),
    "stream": (HANDLE, ctypes.c_int),
    "kill_stream": (ctypes.c_int, HANDLE),
    "hold": (ctypes.c_int, HANDLE, ctypes.c_int),
    "capture": (ctypes.c_int, HANDLE, ctypes.c_int, ctypes.c_int),
    "use": (ctypes.c_int, HANDLE, HANDLE, ctypes.c_int),
    "races": (ctypes.c_char_p,),
    "forget_races": (None,),
    "want_gil": (None,),
    "got_gil": (None,),
    "allocate": (HANDLE, ctypes.c_int, ctypes.c_size_t, ctypes.c_int),
    "free": (ctypes.c_int, HANDLE),
    "copy": (ctypes.c_int, HANDLE, HANDLE, ctypes.c_size_t),
    "fail": (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    "alive": (ctypes.c_int, ctypes.c_char_p),
}


class Driver:
    """The library that the loader finds by its name, as dlbridge does: the same copy, with the same state."""

    def __init__(self, name: str) -> None:
        self.library = ctypes.CDLL(name)
        self.hip = "hip" in name
        for function, (result, *arguments) in FUNCTIONS.items():
            declared = getattr(self.library, f"fake_{function}")
            declared.restype, declared.argtypes = result, arguments

    def log(self, *calls: str) -> list[str]:
        """The lines so far; with names of calls, only theirs."""
        lines = self.library.fake_log().decode().splitlines()
        return [line for line in lines if not calls or line.split()[0] in calls]

    def calls(self) -> list[str]:
        """The names of the calls so far, in order."""
        return [line.split()[0] for line in self.log()]

    def clear(self) -> None:
        self.library.fake_clear()

    def fail(self, call: str, code: int, after: int = 0, times: int = 0) -> None:
        """
        Make `call` (without its prefix) fail with `code` once `after` more have passed; code 0: no longer.

        So many `times`, or from then on.
        """
        self._check(self.library.fake_fail(call.encode(), code, after, times), f"fail {call}")

    def deinitialize(self) -> None:
        """Make all calls fail, as they do while a process ends."""
        self.library.fake_deinitialize()

    def concurrent_managed_access(self, value: bool) -> None:
        self.library.fake_concurrent_managed_access(value)

    def descriptors(self, value: bool) -> None:
        """Whether the devices say that they have memory with descriptors."""
        self.library.fake_descriptors(value)

    def context_of_memory(self, context: int) -> None:
        """Say that all memory is of this context; 0: of its device's primary one."""
        self.library.fake_context_of_memory(context)

    def current_device(self) -> int:
        """The device of this thread's current context, or -1."""
        return self.library.fake_current_device()

    def stream(self, device: int = 0) -> int:
        return self.library.fake_stream(device)

    def kill_stream(self, stream: int) -> None:
        self._check(self.library.fake_kill_stream(stream), f"stream {stream:#x}")

    def hold(self, stream: int, busy: bool = True) -> None:
        """Keep a stream from running, so that no event of it happens; `busy` False lets it run."""
        self._check(self.library.fake_hold(stream, busy), f"stream {stream:#x}")

    def capture(self, stream: int, status: int = 1, mode: str = "thread") -> None:
        """0: not capturing, 1: capturing, 2: the capture is invalidated. The mode "global" binds every thread."""
        self._check(self.library.fake_capture(stream, status, mode == "global"), f"stream {stream:#x}")

    def use(self, start: int, stream: int, how: str) -> None:
        """Queue work of somebody else's that does "read" or "write" the memory."""
        self._check(self.library.fake_use(start, stream, ("read", "write").index(how)), f"stream {stream:#x}")

    def races(self) -> list[str]:
        """What did not follow what it has to follow, since the last call; a child with races left fails."""
        found = self.library.fake_races().decode().splitlines()
        self.library.fake_forget_races()
        return found

    def want_gil(self) -> None:
        """Let another thread take the driver's lock, and want the GIL before it gives that back."""
        self.library.fake_got_gil()                             # the thread of the last time
        ctypes.PyDLL(self.library._name).fake_want_gil()        # it must not give up the GIL on the way

    def allocate(self, device: int, nbytes: int, kind: str = "device") -> int:
        """The address of zeroed memory: "device" (out of the CPU's reach), "host" or "managed"."""
        start = self.library.fake_allocate(device, nbytes, TYPES[kind])
        if not start:
            raise MemoryError(f"{nbytes} bytes of {kind} memory on device {device}")
        return start

    def filled(self, device: int, data: bytes, kind: str = "device") -> int:
        """The address of memory as in allocate(), with these bytes."""
        start = self.allocate(device, len(data), kind)
        self.write(start, data)
        return start

    def free(self, start: int) -> None:
        self._check(self.library.fake_free(start), f"address {start:#x}")

    def write(self, start: int, data: bytes) -> None:
        source = ctypes.create_string_buffer(data, len(data))
        self._check(self.library.fake_copy(start, ctypes.addressof(source), len(data)), f"address {start:#x}")

    def read(self, start: int, nbytes: int) -> bytes:
        target = ctypes.create_string_buffer(nbytes)
        self._check(self.library.fake_copy(ctypes.addressof(target), start, nbytes), f"address {start:#x}")
        return target.raw

    def alive(self, what: str) -> int:
        """
        How many "events", "streams" or "allocations" live, "contexts" are retained, or contexts are "pushed".

        Of memory with descriptors, how many "pages" and "ranges" of addresses.
        """
        count = self.library.fake_alive(what.encode())
        if count < 0:
            raise KeyError(what)
        return count

    def symbol(self, call: str) -> str:
        """The name of what is logged as `call`."""
        if self.hip:
            return "hip" + OF_HIP.get(call, call)
        return f"cu{call}_v2" if hasattr(self.library, f"cu{call}_v2") else f"cu{call}"

    def call(self, call: str, *arguments: Any) -> int:
        """The code of a call, logged as any; HIP's MemcpyAsync is told the default kind of copy."""
        arguments = tuple(HANDLE(argument) if isinstance(argument, int) else argument for argument in arguments)
        if self.hip and call == "MemcpyAsync":
            arguments = (*arguments[:3], ctypes.c_int(4), *arguments[3:])
        return getattr(self.library, self.symbol(call))(*arguments)

    def value(self, call: str, *arguments: Any) -> int:
        """What a call writes to its first argument, a handle or a number; its code, where that is not 0, is raised."""
        value = HANDLE()
        self._check(self.call(call, ctypes.byref(value), *arguments), call)
        return value.value

    def make_current(self, device: int) -> None:
        """What a program does first: the primary context of `device` is retained and pushed."""
        self._check(self.call("Init", 0), "Init")
        self._check(self.call("CtxPushCurrent", self.value("DevicePrimaryCtxRetain", device)), "CtxPushCurrent")

    @staticmethod
    def _check(code: int, what: str) -> None:
        if code:
            raise ValueError(f"the fake driver gives {code} for {what}")


if not os.environ.get("FAKE_DRIVER"):
    raise ImportError("harness.run() gave this process no fake driver")
driver = Driver(os.environ["FAKE_DRIVER"])


def _fail_for_races() -> None:
    found = driver.races()
    if found:
        print(*found, sep="\n", file=sys.stderr, flush=True)
        os._exit(97)


atexit.register(_fail_for_races)
