"""One case per path through dlbridge: every source to every target, shared, copied and refused.

``PATHS`` maps a name to a function without arguments that goes the path once and drops all it made. Who looks for what
a path leaves behind (memory, references, errors of a tool) goes through them all; only installed libraries are in it.
"""

import array
import contextlib
import ctypes
import functools
import importlib.util
import pickle
import types

import numpy as np

import dlbridge
from dlbridge._core import copying
from dlbridge.testing import abi
from dlbridge.testing.producers import CudaArrayInterface, Producer


class Interface:
    """An owner that has one protocol alone."""

    def __init__(self, owner, protocol):
        self.owner = owner
        self.protocol = protocol

    def __getattr__(self, name):
        if name != self.protocol:
            raise AttributeError(name)
        return getattr(self.owner, name)


def is_there(library):
    found = importlib.util.find_spec(library)
    return found is not None and found.origin != "absent"       # a placeholder of support.optional


def numbers():
    return np.arange(12, dtype="float32").reshape(3, 4)


def over_buffer(offset):
    entries = {"shape": (3, 4), "typestr": "<f4", "version": 3, "data": bytearray(48), "offset": offset}
    return types.SimpleNamespace(__array_interface__=entries)


def read_only():
    array = numbers()
    array.flags.writeable = False
    return array


def of_torch(change):
    import torch

    return change(torch.arange(12, dtype=torch.float32).reshape(3, 4))


def of_jax(dtype):
    import jax.numpy

    return jax.numpy.arange(12, dtype=dtype).reshape(3, 4)


def of_pyarrow():
    import pyarrow

    return pyarrow.py_buffer(b"Hello, world")


SOURCES = {
    "ndarray": numbers,
    "ndarray of 0 axes": lambda: np.array(1.0),
    "ndarray without elements": lambda: np.zeros((0, 3), "float32"),
    "reversed ndarray": lambda: numbers()[::-1],
    "transposed ndarray": lambda: numbers().T,
    "swapped ndarray": lambda: numbers().astype(">f4"),
    "read-only ndarray": read_only,
    "field of records": lambda: np.zeros(5, [("a", "i1"), ("b", "f8")])["b"],
    "bytes": lambda: b"Hello, world",
    "bytearray": lambda: bytearray(b"Hello, world"),
    "memoryview": lambda: memoryview(bytearray(24)).cast("d"),
    "array.array": lambda: array.array("f", range(12)),
    "ctypes array": lambda: (ctypes.c_float * 12)(),
    "interface": lambda: Interface(numbers(), "__array_interface__"),
    "interface over a buffer": lambda: over_buffer(0),
    "interface with a bad offset": lambda: over_buffer(49),
    "struct": lambda: Interface(numbers(), "__array_struct__"),
    "DLPack": lambda: Interface(numbers(), "__dlpack__"),
    "producer": lambda: Producer(keeps=False),
    "read-only producer": lambda: Producer(keeps=False, flags=abi.READ_ONLY),
    "producer of packed int4": lambda: Producer(keeps=False, code=0, bits=4),
    "producer of padded int4": lambda: Producer(keeps=False, code=0, bits=4, flags=abi.SUBBYTE_PADDED),
    "producer with an offset": lambda: Producer(keeps=False, shape=(1, 3), byte_offset=12),
    "legacy producer": lambda: Producer(keeps=False, versioned=False),
    "capsule": lambda: dlbridge.to_dlpack(numbers()),
    "legacy capsule": lambda: dlbridge.to_dlpack(numbers(), max_version=None),
    "Tensor": lambda: dlbridge.asdlpack(numbers()),
    "Tensor of bytes": lambda: dlbridge.asdlpack(b"Hello, world"),
    # What is refused everywhere, at one stage or another.
    "list": lambda: [1.0, 2.0],
    "masked ndarray": lambda: np.ma.array([1.0, 2.0], mask=[True, False]),
    "dates": lambda: np.zeros(3, "M8[s]"),
    "producer that refuses": lambda: Producer(keeps=False, error=BufferError("not today")),
    "producer without memory": lambda: Producer(keeps=False, data=None),
    "producer elsewhere": lambda: Producer(keeps=False, device_type=12),
    "CUDA interface": lambda: CudaArrayInterface(numbers()),
}
if is_there("ml_dtypes"):
    import ml_dtypes  # noqa: F401

    # Since it is imported, NumPy knows its types by name.
    SOURCES["bfloat16 ndarray"] = lambda: numbers().astype("bfloat16")
    SOURCES["int4 ndarray"] = lambda: np.ones((3, 4), "int4")
if is_there("torch"):
    SOURCES |= {
        "tensor": functools.partial(of_torch, lambda tensor: tensor),
        "bfloat16 tensor": functools.partial(of_torch, lambda tensor: tensor.bfloat16()),
        "negative tensor": functools.partial(of_torch, lambda tensor: tensor.cfloat().conj().imag),
        "conjugate tensor": functools.partial(of_torch, lambda tensor: tensor.cfloat().conj()),
        "tensor with a gradient": functools.partial(of_torch, lambda tensor: tensor.requires_grad_()),
    }
if is_there("jax"):
    SOURCES |= {
        "jax": functools.partial(of_jax, "float32"),
        "bfloat16 jax": functools.partial(of_jax, "bfloat16"),
    }
if is_there("pyarrow"):
    SOURCES["pyarrow"] = of_pyarrow

TARGETS = ["numpy", "memoryview", "dlpack", "dlbridge"] + [name for name in ("torch", "jax") if is_there(name)]
OPTIONS = {
    "": {},
    ", copied": {"copy": True},
    ", never copied": {"copy": False},
    ", shared": {"readonly": "share"},
    ", on the CPU, detached": {"device": "cpu", "detach": True},
}


def go(make, use):
    # What cannot be is refused: that is a path too.
    with contextlib.suppress(dlbridge.DLBridgeError, BufferError):
        use(make())


def bridge(target, options, source):
    dlbridge.convert(source, target, **options)


def consume(source):
    tensor = dlbridge.asdlpack(source)
    with contextlib.suppress(RuntimeError):     # NumPy's importer has no type of ml_dtypes'
        np.from_dlpack(tensor)
    tensor.__dlpack__(max_version=None, copy=True)
    for protocol in ("__array_interface__", "__array_struct__", "__cuda_array_interface__"):
        getattr(tensor, protocol, None)
    pickle.loads(pickle.dumps(tensor))
    repr(tensor), tensor._repr_html_(), tensor.owner, tensor.__dlpack_device__()
    memoryview(tensor)      # last, for not all types have this form


def copy_in_parts(source):
    """As many threads copy a large array."""
    before = copying._set_split(0, 1)
    try:
        dlbridge.convert(source, "numpy", copy=True)
    finally:
        copying._set_split(*before)


ARRAY = np.zeros(1)     # not made each time: NumPy 2.4 loses a reference to its dtype then


def watched(source):
    with dlbridge.watch() as copies:
        dlbridge.convert(source, "numpy", copy=True)
        dlbridge.convert_tree([source], "memoryview")
    str(copies)


class Namespace:
    from_dlpack = staticmethod(np.from_dlpack)


USES = {
    f"to {target}{suffix}": functools.partial(bridge, target, options)
    for target in TARGETS for suffix, options in OPTIONS.items()
} | {
    "through a Tensor": consume,
    "to numpy, on a GPU": functools.partial(bridge, "numpy", {"device": "cuda"}),
    "to a type": lambda source: dlbridge.convert(source, np.ndarray),
    "to what an array is": lambda source: dlbridge.convert(source, ARRAY),
    "to a namespace": lambda source: dlbridge.convert(source, Namespace),
    "copied in parts": copy_in_parts,
    "watched": watched,
    "explained": lambda source: str(dlbridge.explain(source, "memoryview")),
    "from_dlpack": dlbridge.from_dlpack,
    "from_dlpack, copied": lambda source: dlbridge.from_dlpack(source, device="cpu", copy=True),
    "to_dlpack, legacy": lambda source: dlbridge.to_dlpack(source, max_version=None),
}
if is_there("torch"):
    USES["to torch, writable"] = functools.partial(bridge, "torch", {"readonly": "error"})

PATHS = {
    f"{source} {use}": functools.partial(go, SOURCES[source], USES[use]) for source in SOURCES for use in USES
}
