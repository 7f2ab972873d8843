"""An exporter of the buffer protocol whose Py_buffer says whatever it is told to: Python's own would not lie so.

ctypes alone fills the slots of the type, so that nothing is compiled.
"""

import ctypes

import numpy as np

from support.buffers import PyBuffer

POINTER = ctypes.sizeof(ctypes.c_void_p)
GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
ReleaseBuffer = ctypes.PYFUNCTYPE(None, ctypes.py_object, ctypes.c_void_p)
_increase = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


class Exporter:
    """Gives out the bytes of ``view`` as its Py_buffer; ``owned``: whether the view names its exporter, as it must."""

    view = b""
    owned = True
    exported = released = 0


@GetBuffer
def get_buffer(exporter, view, flags):
    ctypes.memmove(view, exporter.view, ctypes.sizeof(PyBuffer))
    if exporter.owned:
        PyBuffer.from_address(view).obj = id(exporter)
        _increase(exporter)
        exporter.exported += 1
    return 0


@ReleaseBuffer
def release_buffer(exporter, view):
    exporter.released += 1


def fill_slots(kind):
    """tp_as_buffer stands 17 pointers behind the header of a type, and bf_getbuffer first in what it points to."""
    header = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t)
    slots = ctypes.c_void_p.from_address(id(kind) + header + 17 * POINTER).value
    for place, function in enumerate((get_buffer, release_buffer)):
        address = ctypes.cast(function, ctypes.c_void_p).value
        ctypes.c_void_p.from_address(slots + place * POINTER).value = address


class HostileBuffer(Exporter):
    """Six float32 in a shape of (2, 3), with any field of the Py_buffer replaced; None is NULL."""

    def __init__(self, **fields):
        self.array = np.arange(6, dtype=np.float32).reshape(2, 3)
        self.kept = []
        view = PyBuffer()
        described = {
            "buf": self.array.ctypes.data, "len": 24, "itemsize": 4, "ndim": 2, "format": b"f", "shape": (2, 3),
            "strides": (12, 4), **fields}
        for field, value in described.items():
            if isinstance(value, tuple):
                value = (ctypes.c_ssize_t * len(value))(*value)
                self.kept.append(value)
                value = ctypes.cast(value, ctypes.POINTER(ctypes.c_ssize_t))
            setattr(view, field, value)
        self.kept.append(described["format"])
        self.view = bytes(view)


# Slots are inherited when a class is made: each has its own.
for _kind in (Exporter, HostileBuffer):
    fill_slots(_kind)
