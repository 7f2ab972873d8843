"""Producers of memory on the fake GPU driver, and what its log says of order, for code that harness.run() runs."""

import ctypes
import os
import weakref
from typing import Any

from fake_driver.control import driver

CUDA, CUDA_HOST, ROCM, CUDA_MANAGED = 2, 3, 10, 13      # DLPack's device types
FLOAT, BFLOAT = 2, 4                                    # … and its codes of types
EVENTS = "EventRecord", "StreamWaitEvent"


class Interface:
    """``__cuda_array_interface__`` and nothing else, with the entries it is given."""

    def __init__(
        self, start: int, shape: tuple[int, ...] = (4,), typestr: str = "<f4", readonly: bool = False,
        version: int = 3, **entries: Any,
    ) -> None:
        self.entries = {"shape": shape, "typestr": typestr, "data": (start, readonly), "version": version, **entries}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.entries


class LoudInterface(Interface):
    """Says when it goes, and how often dlbridge has touched the driver by then; while the interpreter ends as well."""

    def __del__(self, write: Any = os.write, log: Any = driver.log) -> None:
        write(1, f"gone after {len(log())} calls\n".encode())


class Stream:
    """A stream object of CUDA's own protocol."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", Deleter),
    )


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def tensor_of(capsule: object) -> DLTensor:
    """What a legacy capsule holds."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return DLTensor.from_address(pointer(capsule, b"dltensor"))


def delete(capsule: object) -> None:
    """Let go what a legacy capsule holds, as a consumer does that has renamed it."""
    tensor = tensor_of(capsule)
    name = ctypes.pythonapi.PyCapsule_SetName
    name.argtypes = ctypes.py_object, ctypes.c_char_p
    name(capsule, b"used_dltensor")
    tensor.deleter(ctypes.addressof(tensor))


held: list["Producer"] = []
ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))      # C may call deleters until the process ends


class Producer:
    """``__dlpack__`` of four elements; `told` are the streams it was told, `deleted` counts its deleter's calls."""

    def __init__(self, start: int, device: tuple[int, int] = (CUDA, 0), code: int = FLOAT, bits: int = 32) -> None:
        self.device, self.told, self.deleted = device, [], 0
        self.shape = (ctypes.c_int64 * 1)(4)
        self.deleter = Deleter(self._delete)
        self.tensor = DLTensor(start, *device, 1, code, bits, 1, self.shape, None, 0, None, self.deleter)

    def _delete(self, _: int, held: list["Producer"] = held) -> None:
        self.deleted += 1
        held.remove(self)

    def capsule(self) -> object:
        held.append(self)               # as long as its deleter may be called
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.told.append(stream)
        return self.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """It says that the memory may be written, which legacy capsules do not say."""
        return {"data": (self.tensor.data, False)}


def hold(*objects: object) -> list["weakref.ref[object]"]:
    return [weakref.ref(each) for each in objects]


def alive(references: list["weakref.ref[object]"]) -> list[bool]:
    return [reference() is not None for reference in references]


def fields(line: str) -> dict[str, int]:
    """The arguments in a line of the log."""
    return {name: int(value, 0) for name, _, value in (part.partition("=") for part in line.split() if "=" in part)}


def order() -> list[tuple[int, int]]:
    """The pairs (first, then) of streams in the log so far: `then` was made to wait for what `first` had been given."""
    asked = _asked_events()
    pairs, lines = [], [line for line in driver.log(*EVENTS) if fields(line)["event"] not in asked]
    for record, wait in zip(lines[::2], lines[1::2], strict=True):
        assert (record.split()[0], wait.split()[0]) == EVENTS, lines
        assert "->" not in record + wait, lines
        first, then = fields(record), fields(wait)
        assert (first["event"], first["device"]) == (then["event"], then["device"]), lines
        pairs.append((first["stream"], then["stream"]))
    return pairs


def kept_for() -> list[int]:
    """The streams in the log so far that a release had to wait for."""
    asked = _asked_events()
    return [fields(line)["stream"] for line in driver.log("EventRecord") if fields(line)["event"] in asked]


def _asked_events() -> set[int]:
    return {fields(line)["event"] for line in driver.log("EventQuery", "EventSynchronize")}


def ordered(function: Any) -> list[tuple[int, int]]:
    """The order that one call makes; its result is let go after that."""
    driver.clear()
    result = function()
    pairs = order()
    del result
    return pairs


def counts() -> list[int]:
    """What is alive of what a hand-off may need."""
    return [driver.alive(what) for what in ("events", "allocations", "contexts", "pushed")]
