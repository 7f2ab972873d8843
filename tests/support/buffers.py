"""Py_buffer, and memoryviews that describe memory as no exporter would."""

import ctypes

import numpy as np


class PyBuffer(ctypes.Structure):
    """Py_buffer, as CPython lays it out."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),       # not py_object: PyBuffer_Release counts the reference down
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    )


# A prototype of the tests' own: pydlpack sets argtypes on the functions of ctypes.pythonapi, for the whole process.
from_buffer = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(PyBuffer))(
    ("PyMemoryView_FromBuffer", ctypes.pythonapi))
formats = []


def view_of(array, **fields):
    """Make a memoryview that describes ``array`` with any field of its Py_buffer replaced.

    The caller has to keep the array alive.
    """
    described = {
        "buf": array.ctypes.data,
        "len": array.nbytes,
        "itemsize": array.itemsize,
        "readonly": not array.flags.writeable,
        "ndim": array.ndim,
        "format": np.dtype(array.dtype).char.encode(),
        "shape": array.shape,
        "strides": array.strides,
        "suboffsets": None,
        **fields,
    }
    info = PyBuffer()
    kept = []
    for field, value in described.items():
        if field in ("shape", "strides", "suboffsets") and value is not None:
            extents = (ctypes.c_ssize_t * max(len(value), 1))(*value)
            kept.append(extents)
            value = ctypes.cast(extents, ctypes.POINTER(ctypes.c_ssize_t))
        setattr(info, field, value)
    # PyMemoryView_FromBuffer copies the extents, and keeps only the address of the format.
    formats.append(described["format"])
    return from_buffer(info)
